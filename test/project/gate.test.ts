import { afterEach, describe, expect, it, vi } from 'vitest';
import { Clock } from '../../api/clock.js';
import type { Problem } from '../../api/errors.js';
import { Gate } from '../../api/gate.js';
import type { Reading, Readings } from '../../api/readings.js';

const one = [{ sku: 'A', quantity: 1 }];

/** A read that begins now. */
function reading(): Reading {
  const products = new Map([['A', { sku: 'A', sellable: 1000, more: false }]]);
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
    expect([rush[0], rush[99]]).toEqual([1, 10]);
    vi.advanceTimersByTime(12_000);
    await waits;
    const waitsNow = sentAwayFor();
    expect(await sentAwayFor()).toBe(1);
    vi.advanceTimersByTime(2000);
    await waitsNow;
  });
});
