import { expect } from 'vitest';
import { adopt } from '../../cli/adopt.js';
import { claimBatch } from '../../db/claimBatch.js';
import { until } from '../workflows/engine.js';
import { defectsOf, statuses } from './service.js';
import type { Answer, Hold, Service } from './service.js';

export interface SameSecond {
  count: number;
  /** How long the holds are; their workflows start meanwhile, and their timers fire in the same second. */
  seconds: number;
  /** Without timers: the workflows start when the holds are over, and expire them at once. */
  timers: boolean;
  /** What is going on, for whoever reads along. */
  say?: (line: string) => void;
}

/**
 * Many holds of one product end in the same second. From then on their units are sold, although no expiry
 * has run (R07); while they expire, claims, payments and cancels of another product are answered within
 * 5 s (F35); each ends once, and the ledger says so. Returns how long the expiries took, in ms (F13).
 */
export async function sameSecond(
  service: Service,
  { count, seconds, timers, say = () => {} }: SameSecond,
): Promise<number> {
  const [sku, other] = [await service.product([count]), await service.product([10_000])];
  const paid: Hold[] = [];
  for (let i = 0; i < 5; i += 1)
    paid.push(await service.hold({ [other]: 1 }, { fields: { hold_seconds: 1800 } }));
  const endsAt = Date.now() + seconds * 1000;
  for (let made = 0; made < count; made += 50) {
    const holdSeconds = Math.round((endsAt - Date.now()) / 1000);
    const one = () => service.shop.request({ [sku]: 1 }, { holdSeconds });
    const answers = await claimBatch(
      service.shop.db,
      await Promise.all(Array.from({ length: 50 }, one)),
    );
    expect(new Set(answers.map(({ outcome }) => outcome))).toEqual(new Set(['HELD']));
  }
  say('claimed');
  const start = async () => {
    const { failed, ...adopted } = await adopt(service.shop.db, service.engine.holds);
    expect(failed).toBe(0);
    say(`workflows: ${JSON.stringify(adopted)}`);
  };
  const open = async () => {
    const [row] = await service.shop.query<{ open: number }>(
      `select count(*)::int as open from tahan.hold_lines where sku = $1 and open_until is not null and quantity = 1`,
      [sku],
    );
    return row!.open;
  };
  const { client, prefix } = service.engine.holds;
  const running = async (status = '') => {
    const query = `ExecutionStatus = 'Running' AND TaskQueue = '${prefix}tahan-holds'${status}`;
    return (await client.workflow.count(query)).count;
  };
  if (timers) {
    await start();
    // Until then a claim would wait behind their starts.
    const held = async () => (await running(` AND HoldStatus = 'HELD'`)) >= count;
    await until('their timers run', held, seconds * 1000);
    say('their timers run');
  }

  // By Postgres's clock they are over, and nobody has asked for an expiry: what they held is sold at once.
  await service.shop.shiftClock(seconds * 1000);
  expect(await service.counts(sku)).toEqual({ available: count, held: 0, sold: 0 });
  expect(await open()).toBe(count);
  const buyer = await service.hold({ [sku]: 3 }, { fields: { hold_seconds: 1800 } });
  if (timers) {
    say(`sold again ${endsAt - Date.now()} ms before the first timer`);
    await service.shop.shiftClock(0);
    await until('their end is near', () => Date.now() > endsAt - 300, seconds * 1000);
  }

  let over = false;
  const drained = (async () => {
    const from = Date.now();
    if (!timers) await start();
    await until('all have ended', async () => (await open()) === 0, Math.max(600_000, count * 110));
    over = true;
    return Date.now() - from;
  })();
  const [claims, cancels, payments]: Answer<unknown>[][] = [[], [], []];
  const claiming = async () => {
    do {
      const answer = await service.attempt({ [other]: 1 });
      claims!.push(answer);
      if (answer.status !== 201) continue;
      const reason = { reason: 'changed my mind' };
      cancels!.push(await service.post(`/v1/holds/${answer.body.id}/cancel`, reason));
    } while (!over);
  };
  const confirmed: number[] = [];
  const paying = async () => {
    for (const { id } of paid) {
      const began = performance.now();
      payments!.push(await service.paid(id));
      await service.becomes(id, 'CONFIRMED', 60_000);
      confirmed.push(performance.now() - began);
    }
  };
  const [took] = await Promise.all([drained, claiming(), paying()]);
  say(`all have ended after ${took} ms`);
  for (const [what, answers] of Object.entries({ claims, cancels, payments })) {
    say(
      `${what}: ${JSON.stringify(statuses(answers!))}, ${spread(answers!.map((one) => one.took))}`,
    );
    expect(defectsOf(answers!)).toEqual([]);
    for (const answer of answers!) expect(answer.took, answer.text).toBeLessThan(5_000);
  }
  say(`payments were confirmed after ${spread(confirmed)}`);
  expect(statuses(payments!)).toEqual({ 200: paid.length });

  const [ends] = await service.shop.query(
    `select count(*)::int as holds, count(*) filter (where h.status = 'EXPIRED')::int as expired, sum(m.returns)::int as returns
     from tahan.hold_lines l join tahan.holds h on h.id = l.hold_id cross join lateral (
       select count(*) as returns from tahan.movements m where m.hold_id = h.id and m.type = 'release_reservation') m
     where l.sku = $1 and h.id <> $2`,
    [sku, buyer.id],
  );
  expect(ends).toEqual({ holds: count, expired: count, returns: count });
  expect(await service.counts(sku)).toEqual({ available: count - 3, held: 3, sold: 0 });
  const late = claims!.length - cancels!.filter(({ status }) => status === 200).length;
  await until('the workflows have ended', async () => (await running()) <= 1 + late, 120_000);
  say('the workflows have ended');
  return took;
}

function spread(times: number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (part: number) => Math.round(sorted[Math.floor(part * (sorted.length - 1))] ?? 0);
  return `p50 ${at(0.5)} ms, p99 ${at(0.99)}, most ${at(1)}`;
}
