import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { routes } from '../../api/app.js';
import { columns, lanes } from './matrixColumns.js';
import type { Column } from './matrixColumns.js';
import { run } from './matrixRun.js';
import type { Outcome } from './matrixRun.js';
import { rows } from './matrixTable.js';
import type { Group } from './matrixTable.js';
import { ownServers } from './ownServers.js';
import { openSystem } from './processes.js';

const groups = Object.keys(rows) as Group[];
/** With some of the columns only: TAHAN_MATRIX_COLUMNS="Postgres refuses,the worker is away". */
const wanted = process.env['TAHAN_MATRIX_COLUMNS']?.split(',') ?? Object.keys(columns);
const outcomes = {} as Record<Column, Promise<Outcome>>;
const ends: (() => Promise<void>)[] = [];

beforeAll(() => {
  for (const { own, names } of lanes) {
    const lane = names.filter((name) => wanted.includes(name));
    if (lane.length === 0) continue;
    const servers = own ? ownServers() : Promise.resolve(undefined);
    const system = servers.then((started) => openSystem(started?.places));
    ends.push(async () => {
      await system.then((one) => one.close());
      await (await servers)?.close();
    });
    let turn: Promise<unknown> = system;
    for (const column of lane) {
      const earlier = turn.catch(() => {});
      const { trouble } = columns[column]!;
      turn = outcomes[column] = earlier.then(async () => run(await system, trouble, await servers));
      turn.catch(() => {}); // told where it is awaited
    }
  }
});

afterAll(async () => {
  const settled = await Promise.allSettled(Object.values(outcomes));
  const ended = await Promise.allSettled(ends.map((end) => end()));
  const file = process.env['TAHAN_MATRIX'];
  if (file !== undefined && settled.every(({ status }) => status === 'fulfilled'))
    writeFileSync(file, await table());
  expect(ended.filter(({ status }) => status === 'rejected')).toEqual([]);
});

describe('G15, F42: every endpoint while a server is away', { timeout: 150_000 }, () => {
  it('the matrix has a row for every route', () => {
    const asked = groups.flatMap((group) => Object.keys(rows[group]));
    const bare = new Set(asked.map((name) => name.replace(' (again)', '')));
    expect(bare).toEqual(new Set(routes.map(({ method, path }) => `${method} ${path}`)));
  });

  it.each(wanted)(
    '%s: each answer is a definite one within 5 s and remains true, no process ends, and a checkout right afterwards holds',
    async (column) => {
      const { cells, returnedMs } = (await outcomes[column])!;
      const { expected, slowestMs = {}, backWithinMs = 5000 } = columns[column]!;
      for (const group of groups) {
        const { answers, maxMs } = cells[group];
        const said = Object.keys(answers);
        expect([group, said.filter((one) => !expected[group].includes(one))]).toEqual([group, []]);
        expect(maxMs, `${group}, the slowest`).toBeLessThan(slowestMs[group] ?? 5000);
      }
      expect(returnedMs, 'the first checkout afterwards').toBeLessThan(backWithinMs);
    },
  );
});

/** For ARCHITECTURE.md, as it was measured: `TAHAN_MATRIX=matrix.md npm test matrix`. */
async function table(): Promise<string> {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`;
  const lines = [
    line(['', ...groups, 'afterwards']),
    line(['---', ...groups.map(() => '---'), '---']),
  ];
  for (const column of wanted) {
    const { cells, returnedMs } = (await outcomes[column])!;
    const told = groups.map((group) => {
      const { answers, maxMs } = cells[group];
      const said = Object.keys(answers).sort();
      return `${said.map(inCode).join(' or ')}, ${seconds(maxMs)}`;
    });
    lines.push(line([column, ...told, `201, ${seconds(returnedMs)}`]));
  }
  return `${lines.join('\n')}\n`;
}

function inCode(said: string): string {
  return said.replace(/[A-Z_]{3,}/, (code) => `\`${code}\``);
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
