/**
 * A worker of the new version must be able to carry on every hold that an old one began. The
 * histories of each released version are kept in test/histories/VERSION; after a release, record
 * those of the next one:
 *
 *     TAHAN_RECORD_HISTORIES=1 npx vitest run --project workflow test/workflows/replay.test.ts
 */
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { historyFromJSON, historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { History } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { describe, expect, inject, test } from 'vitest';
import { root } from '../../cli/root.js';
import { endings } from './endings.js';
import { engine, quietRuntime } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';

const folder = join(root, 'test', 'histories');
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  version: string;
};
const recording = process.env['TAHAN_RECORD_HISTORIES'] === '1';

// Defined only when it is asked for: a run of the suite skips nothing.
if (recording) test('record one history per ending', { timeout: 120_000 }, record);

async function record(): Promise<void> {
  const database = new FakeDatabase();
  const shop = await engine(database.activities());
  await shop.start();
  mkdirSync(join(folder, version), { recursive: true });
  for (const [name, bringAbout] of Object.entries(endings)) {
    database.reset();
    const handle = shop.holds.client.workflow.getHandle(await bringAbout(shop, database));
    await handle.result().catch(() => undefined);
    const history = withoutTraces(historyToJSON(await handle.fetchHistory()));
    writeFileSync(join(folder, version, `${name}.json`), `${history}\n`);
  }
  await shop.close();
}

const histories = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.json'))
  .sort()
  .map((name) => ({
    name,
    history: historyFromJSON(JSON.parse(readFileSync(join(folder, name), 'utf8'))),
  }));

describe('F33 replay: running holds survive a deploy', () => {
  test('every way a hold can end has a stored history', () => {
    const stored = histories.map(({ name }) => name);
    for (const name of Object.keys(endings))
      expect(stored).toContain(join(version, `${name}.json`));
  });

  test('all stored histories replay with this version', async () => {
    expect(histories.length).toBeGreaterThanOrEqual(Object.keys(endings).length);
    const failures = await replay(readFileSync(inject('bundlePath'), 'utf8'));
    expect(failures).toEqual({});
  });

  test('a deliberately incompatible workflow fails on every history of a hold', async () => {
    const code = readFileSync(inject('bundlePath'), 'utf8');
    const place = 'await claim();';
    expect(code.split(place)).toHaveLength(2);
    // Two more timers, right after the claim. (One alone is taken for the payment window's.)
    const timer = 'new Promise((done) => setTimeout(done, 5))';
    const changed = code.replace(place, `${place} await Promise.all([${timer}, ${timer}]);`);
    const failures = await replay(changed);
    const ofHolds = histories.filter(({ history }) => typeOf(history) === 'hold');
    expect(Object.keys(failures)).toEqual(ofHolds.map(({ name }) => name));
    expect(new Set(Object.values(failures))).toEqual(new Set(['DeterminismViolationError']));
  });
});

/** The histories that did not replay, with the name of the error. */
async function replay(code: string): Promise<Record<string, string>> {
  quietRuntime();
  const failures: Record<string, string> = {};
  const results = Worker.runReplayHistories(
    { workflowBundle: { code }, replayName: 'stored' },
    (function* () {
      for (const { name, history } of histories) yield { workflowId: name, history };
    })(),
  );
  for await (const { workflowId, error } of results)
    if (error) failures[workflowId] = error.constructor.name;
  return Object.fromEntries(Object.entries(failures).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function typeOf(history: History): string | null | undefined {
  return history.events?.[0]?.workflowExecutionStartedEventAttributes?.workflowType?.name;
}

/** What says on which machine it was recorded, and nothing about the workflow. */
function withoutTraces(json: string): string {
  const quiet = (key: string, value: unknown) => {
    if (key === 'stackTrace') return '';
    return typeof value === 'string' ? value.replace(/^\d+@[\w.]+/, 'recorder') : value;
  };
  return JSON.stringify(JSON.parse(json, quiet), null, 1);
}
