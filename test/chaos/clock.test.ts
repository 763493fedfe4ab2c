import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { audit } from '../db/audit.js';
import { openClocks, Stepped } from '../workflows/clocks.js';
import type { Clocks } from '../workflows/clocks.js';

const steps = [1, 50, 1_000, 30_000, 300_000].flatMap((ms) => [-ms, ms]);
const count = 100;

describe('F12, G7: the clock of Postgres steps during 1,000 holds, and the steps back are put right later', () => {
  let clocks: Clocks;
  beforeAll(async () => {
    clocks = await openClocks(steps.length);
  });
  afterAll(() => clocks.close());

  it(
    'F12, G7: no hold is stuck, none ends early, with few looks at the clock: each ends within its step and 30 s',
    { timeout: 900_000 },
    async () => {
      const all = steps.map((ms, index) => play(new Stepped(clocks, clocks.shops[index]!, ms)));
      const seen = (await Promise.all(all)).map(({ ms, lates, calls }) => ({
        ms,
        first: Math.min(...lates),
        last: Math.max(...lates),
        looks: Math.max(...calls),
      }));
      for (const { ms, first, last, looks } of seen)
        process.stderr.write(
          `${ms} ms: ended ${Math.round(first)} to ${Math.round(last)} ms after the end, ${looks} looks\n`,
        );
      for (const { ms, first, last, looks } of seen) {
        expect(first).toBeGreaterThanOrEqual(0);
        expect(last).toBeLessThan(Math.abs(ms) + 30_000);
        expect(looks).toBeLessThanOrEqual(3);
      }
      for (const shop of clocks.shops) expect(await audit(shop.url)).toEqual({});
      expect(clocks.engine.problems).toEqual([]);
    },
  );

  /** How long after its end each hold was closed, and how often its workflow asked. */
  async function play(step: Stepped): Promise<{ ms: number; lates: number[]; calls: number[] }> {
    await step.claim(count, 90);
    // Those that are overdue at once are sold at once.
    if (step.ms > 90_000) expect(await step.take(1)).toBe('HELD');
    if (step.ms <= -30_000) {
      const told = await step.notDue(300_000);
      // A machine that is 30 s late with a timer sees the smaller step as over.
      expect(told).toBeGreaterThanOrEqual(step.ms === -30_000 ? 1 : count);
      if (told === count) expect(await step.take(1)).toBe('INSUFFICIENT_STOCK');
      await step.shop.shiftClock(0);
      // Until the workflows wake, the units are sellable; nobody has to wait for them.
      expect(await step.take(8)).toBe('HELD');
    }
    const ends = await step.allExpire(480_000);
    return { ms: step.ms, lates: ends.map(({ late }) => late), calls: step.expiryCalls() };
  }
});
