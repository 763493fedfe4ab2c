import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ownServers, signalAll } from '../api/ownServers.js';
import type { OwnServers } from '../api/ownServers.js';
import { openSystem } from '../api/processes.js';
import type { System } from '../api/processes.js';
import { audit } from '../db/audit.js';

/** How often each fault is tried, and how long a stop may last; the goals need 10 and 30. */
const rounds = Number(process.env['TAHAN_CHAOS_ROUNDS'] ?? 1);
const longestStopMs = Number(process.env['TAHAN_CHAOS_STOP_SECONDS'] ?? 30) * 1000;
const holdsPerSecond = 20;

let servers: OwnServers;
let system: System;
let sku: string;
/** Held per second when nothing is wrong. */
let healthy: number;

beforeAll(async () => {
  servers = await ownServers();
  // As under `npm start`: what one machine finishes in 2 s, beside the servers and the buyers. With 60
  // a queue of late claims, once there, never ended under this load.
  system = await openSystem(servers.places, { TAHAN_CLAIMS_IN_FLIGHT: '20' });
  sku = await system.product([1_000_000]);
  await load(5_000);
  const sent = await load(15_000);
  healthy = sent.filter(({ status }) => status === 201).length / 15;
  console.log(`healthy: ${healthy.toFixed(1)} holds/s`);
});
afterAll(async () => {
  await system.close();
  await servers.close();
});

interface Sent {
  id: string;
  /** 0: the connection broke, as it does when the API is killed. */
  status: number;
  took: number;
}

/** So many checkouts a second, each of a buyer of its own, none waiting for another. */
async function load(forMs: number): Promise<Sent[]> {
  const sent: Promise<Sent>[] = [];
  const endsAt = Date.now() + forMs;
  for (let next = Date.now(); next < endsAt; next += 1000 / holdsPerSecond) {
    await pause(Math.max(0, next - Date.now()));
    const [buyer, key] = [randomUUID(), randomUUID()];
    sent.push(
      system
        .holdIdOf(buyer, key)
        .catch(() => '')
        .then(async (id) => {
          const answer = await system.attempt({ [sku]: 1 }, { buyer, key }).catch(() => undefined);
          return { id, status: answer?.status ?? 0, took: answer?.took ?? 0 };
        }),
    );
  }
  return Promise.all(sent);
}

/** Something is wrong for `wrongMs`, in the middle of a load that lasts three times as long and 12 s more. */
async function under(
  what: string,
  wrongMs: number,
  [begin, end]: readonly [() => unknown, () => unknown],
): Promise<void> {
  const [before] = await totals();
  const lastsMs = 12_000 + 3 * wrongMs;
  const loading = load(lastsMs);
  await pause(3_000);
  await begin();
  await pause(wrongMs);
  await end();
  const sent = await loading;
  const held = sent.filter(({ status }) => status === 201);
  const rate = held.length / (lastsMs / 1000);
  console.log(
    `${held.length} of ${sent.length} held, ${((100 * rate) / healthy).toFixed(0)} % of the healthy rate`,
  );
  // What was promised is there; what was denied is not; nothing else has moved.
  const rows = await system.shop.query<{ id: string }>(
    `select id from tahan.holds where status = 'HELD'`,
  );
  const there = new Set(rows.map(({ id }) => id));
  expect(held.filter(({ id }) => id !== '' && !there.has(id))).toEqual([]);
  expect(sent.filter(({ id, status }) => status === 503 && there.has(id))).toEqual([]);
  const unknown = sent.filter(({ status }) => status === 0 || status === 202).length;
  const [after] = await totals();
  expect(after! - before!).toBeGreaterThanOrEqual(held.length);
  expect(after! - before!).toBeLessThanOrEqual(held.length + unknown);
  expect(await audit(system.shop.url)).toEqual({});
  expect(Math.max(...sent.map(({ took }) => took))).toBeLessThan(
    what === 'api' ? 6_000 + wrongMs : 6_000,
  );
  expect(rate).toBeGreaterThan(0.3 * healthy);
}

async function totals(): Promise<number[]> {
  const rows = await system.shop.query<{ held: number }>(
    'select sum(held)::int as held from tahan.bins where sku = $1',
    [sku],
  );
  return rows.map(({ held }) => held);
}

const killed = {
  worker: [() => system.processes.worker.child.kill('SIGKILL'), () => system.startWorker()],
  api: [() => system.processes.api.child.kill('SIGKILL'), () => system.startApi()],
  postgres: [() => process.kill(servers.postgres.pid, 'SIGKILL'), () => servers.startPostgres()],
  temporal: [() => process.kill(servers.temporal.pid, 'SIGKILL'), () => servers.startTemporal()],
} as const;

const pidOf = (what: keyof typeof killed) =>
  what === 'postgres' || what === 'temporal'
    ? servers[what].pid
    : system.processes[what].child.pid!;

describe.each(Object.keys(killed) as (keyof typeof killed)[])(
  'G4, G5: under 20 holds a second, %s',
  { timeout: rounds * 240_000 },
  (what) => {
    it('killed with -9 and started again: the books are exact, and a third of the holds is made all the same', async () => {
      for (let round = 1; round <= rounds; round += 1) await under(what, 1_000, killed[what]);
    });

    it('stopped for 1 to 30 s (SIGSTOP): the same', async () => {
      for (let round = 1; round <= rounds; round += 1) {
        const stopMs = randomInt(1_000, longestStopMs + 1);
        console.log(`stopped for ${stopMs} ms`);
        try {
          await under(what, stopMs, [
            () => signalAll(pidOf(what), 'SIGSTOP'),
            () => signalAll(pidOf(what), 'SIGCONT'),
          ]);
        } finally {
          signalAll(pidOf(what), 'SIGCONT');
        }
      }
    });
  },
);
