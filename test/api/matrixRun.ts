import { deliverAsStripe } from './stripeEvents.js';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import { audit } from '../db/audit.js';
import { signalAll } from './ownServers.js';
import type { OwnServers } from './ownServers.js';
import type { System } from './processes.js';
import { makeChange, prepare, releaseOne, returnIt, rows } from './matrixTable.js';
import type { Ask, Before, Group } from './matrixTable.js';
import type { Answer } from './service.js';

type Step = (system: System, servers?: OwnServers) => void | Promise<void> | undefined;

/** What is wrong, and how it becomes right again. */
export interface Trouble {
  begin: Step;
  end: Step;
  /** The tries go on until then; two at least. */
  enough?: () => boolean;
  /** A try begins so long after the one before, whose answers it does not wait for. */
  apartMs?: number;
}

/** Status and code of every answer, by the row's group, and how long the slowest took. */
export type Cells = Record<Group, { answers: Record<string, number>; maxMs: number }>;

export interface Outcome {
  cells: Cells;
  tries: number;
  /** From the end of the trouble to the first checkout that holds, in ms. */
  returnedMs: number;
}

/** Everything is asked while something is wrong; afterwards what was answered must be true. */
export async function run(
  system: System,
  { begin, end, enough = () => true, apartMs = 1000 }: Trouble,
  servers?: OwnServers,
): Promise<Outcome> {
  const before = await prepare(system);
  const cells = Object.fromEntries(
    Object.keys(rows).map((group) => [group, { answers: {}, maxMs: 0 }]),
  ) as unknown as Cells;
  const tries: Promise<void>[] = [];
  let returnedMs: number;
  await begin(system, servers);
  try {
    for (; tries.length < 2 || !enough(); await pause(apartMs))
      tries.push(askAll(system, before, cells));
    await Promise.all(tries);
    noneHasEnded(system, begin === workerIsAway.begin ? ['api'] : ['api', 'worker']);
  } finally {
    await end(system, servers);
    const endedAt = performance.now();
    const { status } = await system.checkout({ [before.sku]: 1 });
    returnedMs = performance.now() - endedAt;
    expect(status).toBe(201);
  }
  await keptItsWord(system, before);
  return { cells, tries: tries.length, returnedMs };
}

async function askAll(system: System, before: Before, cells: Cells): Promise<void> {
  const asked = (Object.keys(rows) as Group[]).flatMap((group) =>
    Object.values(rows[group]).map(async (ask: Ask) => {
      const answer = await inTime(ask(system, before));
      const { answers } = cells[group];
      const said = sayOf(answer);
      answers[said] = (answers[said] ?? 0) + 1;
      cells[group].maxMs = Math.max(cells[group].maxMs, answer.took);
    }),
  );
  await Promise.all(asked);
}

/** No answer at all is a failure of the test, not a test without end. */
async function inTime<T>(asked: Promise<T>): Promise<T> {
  const timer = new AbortController();
  const late = pause(20_000, undefined, { signal: timer.signal }).then(() => {
    throw new Error('no answer within 20 s');
  });
  try {
    return await Promise.race([asked, late]);
  } finally {
    late.catch(() => {});
    timer.abort();
  }
}

export function sayOf({ status, body }: Answer<unknown>): string {
  return status >= 400 && 'code' in body ? `${status} ${body.code}` : String(status);
}

/** Nothing was promised that isn't there, and nothing is there that was denied. */
async function keptItsWord(system: System, before: Before): Promise<void> {
  const { sku } = before;
  for (const { buyer, key, answer } of before.checkouts) {
    const id = await system.holdIdOf(buyer, key);
    const [row] = await system.shop.query('select status from tahan.holds where id = $1', [id]);
    if (answer.status === 201) expect([row, id]).toEqual([{ status: 'HELD' }, id]);
    if (answer.status === 503) expect([row, answer.text]).toEqual([undefined, answer.text]);
  }
  // Whoever was told to repeat, repeats, and gets what was asked for once.
  for (const { path, buyer, key, answer } of before.checkouts) {
    if (answer.status === 201) continue;
    const { status } = await system.checkout({ [sku]: 1 }, { path, buyer, key });
    expect(answer.status === 202 ? [200, 201] : [201]).toContain(status);
  }
  for (const one of before.changes)
    expect((await again(() => makeChange(system, one))).status).toBe(200);
  const { cancelled, cancelKey, extended, extendKey, paid, event, eventId } = before;
  const { paidAtStripe, eventOfStripe } = before;
  const rest = await Promise.all([
    again(() =>
      system.post(
        `/v1/holds/${cancelled}/cancel`,
        { reason: 'no more' },
        { idempotencyKey: cancelKey },
      ),
    ),
    again(() =>
      system.post(`/v1/holds/${extended}/extend`, { seconds: 60 }, { idempotencyKey: extendKey }),
    ),
    again(() => releaseOne(system, before)),
    again(() => returnIt(system, before)),
    again(() => system.deliver(event, { id: eventId })),
    again(() => deliverAsStripe(system, eventOfStripe)),
    again(() => system.attempt({ [sku]: 1 }, { buyer: 'again', key: before.repeated.key })),
  ]);
  expect(rest.map(sayOf)).toEqual(['200', '200', '200', '200', '200', '200', '200']);
  await system.becomes(paid, 'CONFIRMED');
  await system.becomes(paidAtStripe, 'CONFIRMED');
  const units = before.changes.reduce((sum, { units }) => sum + units, 0);
  const held = before.checkouts.length + 5; // the order, the repeated, the extended, one of two, and the first after the return
  expect(await system.counts(sku)).toEqual({
    available: 1000 + units - held - 3,
    held,
    sold: 3,
  });
  const [{ extensions }] = (await system.shop.query(
    'select extensions::int as extensions from tahan.holds where id = $1',
    [extended],
  )) as [{ extensions: number }];
  expect(extensions).toBe(1);
  expect(await audit(system.shop.url)).toEqual({});
  noneHasEnded(system, ['api', 'worker']);
}

/** No process has ended, and none has met something that it has no word for. */
function noneHasEnded({ processes }: System, roles: ('api' | 'worker')[]): void {
  for (const role of roles) {
    const { child, lines } = processes[role];
    const defects = lines.filter((line) => /"defect"/.test(line));
    expect([role, child.exitCode, child.signalCode, defects]).toEqual([role, null, null, []]);
  }
}

async function again(ask: () => Promise<Answer<unknown>>): Promise<Answer<unknown>> {
  for (let tries = 1; ; tries += 1) {
    const answer = await ask();
    if (answer.status !== 503 || tries === 20) return answer;
  }
}

type Server = 'postgres' | 'temporal';

/** The ways of API and worker to a server. */
const ways = ({ to }: System, server: Server) => Object.values(to[server]);

async function plug(system: System, server: Server): Promise<void> {
  await Promise.all(ways(system, server).map((way) => way.plug()));
}

export function refuses(server: Server): Trouble {
  return {
    async begin(system) {
      await Promise.all(ways(system, server).map((way) => way.pull()));
    },
    end: (system) => plug(system, server),
  };
}

export function losesAll(server: Server): Trouble {
  return {
    begin: (system) => ways(system, server).forEach((way) => way.lose()),
    end: (system) => plug(system, server),
  };
}

export function isSlow(server: Server): Trouble {
  return {
    begin: (system) => ways(system, server).forEach((way) => way.slow(2000)),
    end: (system) => plug(system, server),
  };
}

export function isStopped(server: Server): Trouble {
  return {
    begin: (_system, servers) => signalAll(servers![server].pid, 'SIGSTOP'),
    end: (_system, servers) => signalAll(servers![server].pid, 'SIGCONT'),
  };
}

export const workerIsAway: Trouble = {
  async begin({ processes: { worker } }) {
    worker.child.kill('SIGKILL');
    await worker.exit;
  },
  end: (system) => system.startWorker(),
};

/** Every connection of API and worker, again and again, 500 in all. */
export function backendsAreKilled(): Trouble {
  let killed = 0;
  let going: Promise<void> | undefined;
  let ended = () => false;
  return {
    begin({ shop, processes }) {
      ended = () => Object.values(processes).some(({ child }) => child.exitCode !== null);
      const kill = async () => {
        while (killed < 500 && !ended()) {
          const rows = await shop.query(
            `select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and application_name in ('tahan api', 'tahan worker')`,
          );
          killed += rows.length;
          // So that there is something to interrupt.
          await pause(50);
        }
      };
      going = kill();
    },
    end: () => going,
    enough: () => killed >= 500 || ended(),
    apartMs: 500,
  };
}
