import { afterEach, describe, expect, it, vi } from 'vitest';
import { Clock } from '../../api/clock.js';
import type { Problem } from '../../api/errors.js';
import { Gate } from '../../api/gate.js';
import type { Reading, Readings } from '../../api/readings.js';

const one = [{ sku: 'A', quantity: 1 }];

/** A read that begins now. */
function reading(sellable = 1000): Reading {
  const products = new Map([['A', { sku: 'A', sellable, more: false }]]);
  return { beganAt: performance.now(), products } as unknown as Reading;
}

afterEach(() => void vi.useRealTimers());

describe('the gate (R14)', () => {
  it('F35: forgets claims that have ended also while nobody waits: each was looked at by every checkout after it', async () => {
    const gate = new Gate({ read: () => Promise.resolve(reading()) } as unknown as Readings, 50);
    for (let claims = 0; claims < 200; claims += 1)
      (await gate.pass(one, reading(), new Clock())).ended(true);
    expect(gate.state).toMatchObject({ running: 0, waiting: 0 });
    expect(gate.state.counted).toBeLessThan(10);
  });

  it('R12: nobody who waits is refused by a read that began before he came: the next one is for him', async () => {
    const reads: ((sellable: number) => void)[] = [];
    const read = () =>
      new Promise<Reading>((resolve) => {
        const { beganAt } = reading();
        reads.push((sellable) => resolve({ ...reading(sellable), beganAt }));
      });
    const gate = new Gate({ read } as unknown as Readings, 50);
    const last = await gate.pass(one, reading(1), new Clock());
    const first = gate.pass(one, reading(1), new Clock()).catch(({ code }: Problem) => code);
    const second = gate.pass(one, reading(1), new Clock());
    // The read that began with the first knows nothing of what has come back since.
    last.ended(false);
    reads[0]!(0);
    expect(await first).toBe('INSUFFICIENT_STOCK');
    await vi.waitUntil(() => reads.length === 2);
    reads[1]!(1);
    expect(await second).toHaveProperty('ended');
  });

  it('F35: after a rush it sends nobody away for longer than before it', async () => {
    vi.useFakeTimers();
    const gate = new Gate({ read: () => new Promise(() => {}) } as unknown as Readings, 1);
    const sentAwayFor = () =>
      gate.pass(one, reading(), new Clock()).then(
        () => undefined,
        (problem: Problem) => problem.retryAfterSeconds,
      );
    await gate.pass(one, reading(), new Clock());
    const waits = sentAwayFor();
    const rush = await Promise.all(Array.from({ length: 100 }, sentAwayFor));
    expect([rush[0], rush[99]]).toEqual([1, 20]);
    vi.advanceTimersByTime(22_000);
    await waits;
    const waitsNow = sentAwayFor();
    expect(await sentAwayFor()).toBe(1);
    vi.advanceTimersByTime(2000);
    await waitsNow;
  });
});
