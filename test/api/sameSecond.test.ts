import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { adopt } from '../../cli/adopt.js';
import { claimBatch } from '../../db/claimBatch.js';
import { length } from '../setup/length.js';
import { until } from '../workflows/engine.js';
import { killProcess, startProcess } from '../workflows/process.js';
import type { OwnProcess } from '../workflows/process.js';
import { defectsOf, sharedService, statuses } from './service.js';
import type { Answer } from './service.js';

const count = length(500, 10_000);
/** Long enough for all of their workflows to start. */
const holdSeconds = length(9, 150);

const service = sharedService({ workers: false });
let worker: OwnProcess;
beforeAll(async () => {
  worker = await startProcess('worker', {
    DATABASE_URL: service.shop.url,
    TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
    ...(process.env['TAHAN_CACHED_HOLDS'] && {
      TAHAN_CACHED_HOLDS: process.env['TAHAN_CACHED_HOLDS'],
    }),
  });
});
afterAll(() => killProcess(worker));

it(
  `F13, F35, R07: ${count} holds that end in the same second: sellable from then on, and while they expire, claims and payments of another product are answered within 5 s; each ends once`,
  { timeout: 900_000 },
  async () => {
    const [sku, other] = [await service.product([count]), await service.product([10_000])];
    await service.hold({ [other]: 1 });
    const endsAt = Date.now() + holdSeconds * 1000;
    for (let made = 0; made < count; made += 50) {
      const seconds = Math.round((endsAt - Date.now()) / 1000);
      const requests = await Promise.all(
        Array.from({ length: 50 }, () => service.shop.request({ [sku]: 1 }, { holdSeconds: seconds })),
      );
      const answers = await claimBatch(service.shop.db, requests);
      expect(new Set(answers.map(({ outcome }) => outcome))).toEqual(new Set(['HELD']));
    }
    say('claimed');
    const { started, running } = await adopt(service.shop.db, service.engine.holds);
    expect(started).toBe(count);
    say(`${started} started, ${running} ran`);
    const paid = [];
    for (let i = 0; i < length(5, 20); i += 1) paid.push(await service.hold({ [other]: 1 }));

    // By Postgres's clock they are over, and no timer has fired: what they held is sold at once.
    await service.shop.shiftClock(holdSeconds * 1000);
    expect(await service.counts(sku)).toEqual({ available: count, held: 0, sold: 0 });
    expect(await open()).toBe(count);
    const buyer = await service.hold({ [sku]: 3 }, { fields: { hold_seconds: 1800 } });
    say(`sold again ${buyer.status}, ${endsAt - Date.now()} ms before the first timer`);
    await service.shop.shiftClock(0);

    await until('their end is near', () => Date.now() > endsAt - 500, holdSeconds * 1000);
    const [claims, payments, changes] = [[], [], []] as Answer<unknown>[][];
    const confirmed: number[] = [];
    const drained = (async () => {
      await until('the first have ended', async () => (await open()) < count - 8, 60_000);
      const from = Date.now();
      await until('all have ended', async () => (await open()) === 0, 600_000);
      return Date.now() - from;
    })();
    let over = false;
    void drained.finally(() => (over = true));
    const claiming = (async () => {
      while (!over) {
        const answer = await service.attempt({ [other]: 1 });
        claims!.push(answer);
        if (answer.status !== 201) continue;
        const path = `/v1/holds/${answer.body.id}/cancel`;
        changes!.push(await service.post(path, { reason: 'changed my mind' }));
      }
    })();
    const paying = (async () => {
      for (const hold of paid) {
        const began = performance.now();
        payments!.push(await service.paid(hold.id));
        await service.becomes(hold.id, 'CONFIRMED', 60_000);
        confirmed.push(performance.now() - began);
      }
    })();
    const took = await drained;
    say(`drained in ${took} ms`);
    await Promise.all([claiming, paying]);
    tell('claims', claims!);
    tell('payments', payments!);
    tell('cancels', changes!);
    say(`confirmed after ${spread(confirmed)} ms`);

    for (const answers of [claims!, payments!, changes!]) {
      expect(answers.length).toBeGreaterThan(0);
      expect(Math.max(...answers.map(({ took }) => took))).toBeLessThan(5_000);
      expect(defectsOf(answers)).toEqual([]);
    }
    expect(statuses(payments!)).toEqual({ 200: paid.length });
    if (count > 500) expect(took).toBeLessThan(30_000);
    const [ends] = await service.shop.query(
      `select count(distinct h.id)::int as holds, count(*) filter (where h.status = 'EXPIRED')::int as expired,
         count(m.id)::int as returns, min(m.quantity) as least, max(m.quantity) as most
       from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
       left join tahan.movements m on m.hold_id = h.id and m.type = 'release_reservation'
       where l.sku = $1 and h.id <> $2`,
      [sku, buyer.id],
    );
    expect(ends).toEqual({ holds: count, expired: count, returns: count, least: 1, most: 1 });
    expect(await service.counts(sku)).toEqual({ available: count - 3, held: 3, sold: 0 });
    await until('the workflows have ended', async () => (await workflowsRunning()) <= 1 + held(claims!, changes!), 120_000);
    say('workflows ended');
  },
);

/** Holds of the other product whose cancel was not answered in time. */
function held(claims: Answer<unknown>[], changes: Answer<unknown>[]): number {
  const of = (answers: Answer<unknown>[], ok: number[]) =>
    answers.filter(({ status }) => ok.includes(status)).length;
  return claims.length - of(claims, []) - of(changes, [200]) + 1;
}

async function open(): Promise<number> {
  const [row] = await service.shop.query<{ open: number }>(
    `select count(*)::int as open from tahan.hold_lines l join tahan.holds h on h.id = l.hold_id
     where h.status = 'HELD' and l.quantity = 1 and l.sku = (select min(sku) filter (where total > 0) from tahan.bins
       where total = $1)`,
    [count],
  );
  return row!.open;
}

async function workflowsRunning(): Promise<number> {
  const { client, prefix } = service.engine.holds;
  const query = `ExecutionStatus = 'Running' AND TaskQueue = '${prefix}tahan-holds'`;
  return (await client.workflow.count(query)).count;
}

function memory(): string {
  const status = readFileSync(`/proc/${worker.child.pid}/status`, 'utf8');
  const of = (name: string) => Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)![1]) / 1024);
  const stat = readFileSync(`/proc/${worker.child.pid}/stat`, 'utf8').split(' ');
  return `rss ${of('VmRSS')} MiB (most ${of('VmHWM')}), cpu ${(Number(stat[13]) + Number(stat[14])) / 100} s`;
}

const began = Date.now();
function say(line: string): void {
  process.stderr.write(`${((Date.now() - began) / 1000).toFixed(1)} s: ${line}; worker ${memory()}\n`);
}

function tell(what: string, answers: Answer<unknown>[]): void {
  const codes = new Set(answers.map(({ body }) => body.code).filter(Boolean));
  say(`${what}: ${JSON.stringify(statuses(answers))} ${[...codes].join()} ${spread(answers.map(({ took }) => took))} ms`);
}

function spread(times: number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (part: number) => Math.round(sorted[Math.floor(part * (sorted.length - 1))] ?? 0);
  return `p50 ${at(0.5)}, p99 ${at(0.99)}, most ${at(1)}`;
}
void randomUUID;
