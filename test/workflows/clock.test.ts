import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { audit } from '../db/audit.js';
import { openClocks, Stepped } from './clocks.js';
import type { Clocks, End } from './clocks.js';

/**
 * The clock of Postgres steps while the timers of Temporal run. Each step has a database of its own,
 * so that all of them wait at the same time. The full form is test/chaos/clock.test.ts.
 */
const steps = [1, 50, 1_000, 30_000, 300_000].flatMap((ms) => [-ms, ms]);
const count = 10;

/** What was seen of one step. */
interface Seen {
  ends: End[];
  mostExpiryCalls: number;
  counts: Awaited<ReturnType<Stepped['counts']>>;
  /** Claims by others: before any timer, while the clock is behind, and when it is put right. */
  taken: string[];
  whileBehind: End[];
  woken: string[];
}

describe('F12, G7: the clock of Postgres steps during ten holds, by 1 ms to 5 minutes', () => {
  let clocks: Clocks;
  let seen: Map<number, Seen>;

  beforeAll(async () => {
    clocks = await openClocks(steps.length);
    const all = steps.map((ms, index) => play(new Stepped(clocks, clocks.shops[index]!, ms)));
    seen = new Map((await Promise.all(all)).map((one, index) => [steps[index]!, one]));
  });
  afterAll(() => clocks.close());

  async function play(step: Stepped): Promise<Seen> {
    await step.claim(count, 3);
    const taken: string[] = [];
    let whileBehind: End[] = [];
    let woken: string[] = [];
    if (step.ms >= 30_000) taken.push(await step.take(1));
    if (step.ms <= -30_000) {
      expect(await step.notDue(60_000)).toBe(count);
      whileBehind = await step.ends();
      taken.push(await step.take(1));
      await step.shop.shiftClock(0);
      taken.push(await step.take(count));
      // Each workflow sleeps as long as it was told; a message wakes it, and then it has ended.
      woken = await step.wake();
    }
    const ends = await step.allExpire(60_000);
    const mostExpiryCalls = Math.max(...step.expiryCalls());
    return { ends, mostExpiryCalls, counts: await step.counts(), taken, whileBehind, woken };
  }

  test.each(steps)(
    'F12: by %i ms: every hold ends, none early, with three looks at the clock at most, and the books agree',
    async (ms) => {
      const { ends, mostExpiryCalls } = seen.get(ms)!;
      expect(ends.map(({ status }) => status)).toEqual(Array(count).fill('EXPIRED'));
      // By the clock that decides: each was overdue as it was closed.
      expect(Math.min(...ends.map(({ late }) => late))).toBeGreaterThanOrEqual(0);
      expect(mostExpiryCalls).toBeLessThanOrEqual(3);
      expect(await audit(clocks.shops[steps.indexOf(ms)]!.url)).toEqual({});
      expect(clocks.engine.problems).toEqual([]);
    },
  );

  test('F12: small steps change nothing: the timers give all units back', () => {
    for (const ms of [-1, 1, -50, 50, -1_000, 1_000]) {
      const { ends, counts } = seen.get(ms)!;
      expect(new Set(ends.map(({ by }) => by))).toEqual(new Set(['timer']));
      expect(counts).toMatchObject({ available: count, held: 0 });
    }
  });

  test('F12, R07: ahead, a hold whose timer has not fired is overdue: the next claim takes its unit, and its workflow ends', () => {
    for (const ms of [30_000, 300_000]) {
      const { ends, counts, taken } = seen.get(ms)!;
      expect(taken).toEqual(['HELD']);
      // A claim gives back eight overdue holds at most; the timers do the rest.
      expect(ends.filter(({ by }) => by === 'claim').length).toBeGreaterThanOrEqual(1);
      expect(counts).toMatchObject({ available: count - 1, held: 1 });
    }
  });

  test('F12: behind, nothing is given back when the timer fires; put right, all units are sellable at once', () => {
    for (const ms of [-30_000, -300_000]) {
      const { ends, counts, taken, whileBehind, woken } = seen.get(ms)!;
      expect(whileBehind.map(({ status }) => status)).toEqual(Array(count).fill('HELD'));
      expect(taken).toEqual(['INSUFFICIENT_STOCK', 'HELD']);
      expect(woken).toEqual(Array(count).fill('ALREADY'));
      expect(new Set(ends.map(({ by }) => by))).toEqual(new Set(['claim']));
      expect(counts).toMatchObject({ available: 0, held: count });
    }
  });
});
