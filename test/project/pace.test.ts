import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Pace } from '../../api/pace.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** An engine that works off so many claims a second, in order, and always has as many as it may. */
function rush(pace: Pace, perSecond: number, seconds: number): void {
  while (!pace.full) pace.began();
  for (let claim = 0; claim < perSecond * seconds; claim += 1) {
    vi.advanceTimersByTime(1000 / perSecond);
    pace.ended(true);
    while (!pace.full) pace.began();
  }
}

describe('claims under way (R14, F35)', () => {
  it('are as many as the engine finishes in a second, whether it is slower or faster than thought', () => {
    for (const perSecond of [20, 50, 200]) {
      const pace = new Pace(1000);
      rush(pace, perSecond, 6);
      expect(pace.limit / perSecond, `${perSecond} a second`).toBeGreaterThan(0.9);
      expect(pace.limit / perSecond, `${perSecond} a second`).toBeLessThan(1.15);
      expect(pace.perSecond).toBe(pace.limit);
    }
  });

  it('follow an engine that becomes slower, and faster again', () => {
    const pace = new Pace(1000);
    rush(pace, 100, 6);
    expect(pace.limit).toBeGreaterThan(80);
    rush(pace, 20, 8);
    expect(pace.limit).toBeLessThan(25);
    rush(pace, 100, 6);
    expect(pace.limit).toBeGreaterThan(80);
  });

  it('are never more than was set, and are measured at 16 at least', () => {
    const bounded = new Pace(40);
    rush(bounded, 200, 6);
    expect(bounded.limit).toBe(40);
    const slow = new Pace(1000);
    rush(slow, 1, 60);
    expect(slow.limit).toBe(16);
    const few = new Pace(10);
    rush(few, 5, 20);
    expect(few.limit).toBe(10);
  });

  it('are as few as 8 when claims are not answered, and stay so at an engine that is as slow', () => {
    const pace = new Pace(1000);
    rush(pace, 5, 20);
    for (let second = 0; second < 10; second += 1) {
      pace.ended(false);
      pace.began();
      vi.advanceTimersByTime(1100);
    }
    expect(pace.limit).toBe(8);
    rush(pace, 5, 20);
    expect(pace.limit).toBe(8);
  });

  it('are not taken for fewer when claims come back together, as those do that were let through together', () => {
    const pace = new Pace(1000);
    const limits: number[] = [];
    while (!pace.full) pace.began();
    for (let wave = 0; wave < 40; wave += 1) {
      // 32 a second, of which nothing is seen for the first half of the time that they take.
      const together = pace.running;
      for (let claim = 0; claim < together; claim += 1) {
        vi.advanceTimersByTime(claim === 0 ? (together * 500) / 32 : 500 / 32);
        pace.ended(true);
        limits.push(pace.limit);
      }
      while (!pace.full) pace.began();
    }
    const later = limits.slice(limits.length / 2);
    expect(Math.min(...later)).toBeGreaterThan(28);
    expect(Math.max(...later)).toBeLessThan(37);
  });

  it('stay as they are while the engine idles: a few claims say nothing about what it can do', () => {
    const pace = new Pace(1000);
    rush(pace, 100, 6);
    for (let left = pace.running; left > 0; left -= 1) pace.ended(true);
    const before = pace.limit;
    for (let minute = 0; minute < 10; minute += 1) {
      pace.began();
      vi.advanceTimersByTime(60_000);
      pace.ended(true);
    }
    // The first of a new rush is measured from its beginning.
    while (pace.running < before) pace.began();
    vi.advanceTimersByTime(20);
    pace.ended(true);
    expect(pace.limit).toBe(before);
  });

  it('become fewer when claims are not answered, once for all that are late together, and more again after it', () => {
    const pace = new Pace(1000);
    rush(pace, 100, 6);
    const before = pace.limit;
    for (let late = 0; late < 50; late += 1) pace.ended(false);
    expect(pace.limit).toBe(Math.round(before / 2));
    for (let second = 0; second < 10; second += 1) {
      vi.advanceTimersByTime(1100);
      pace.ended(false);
    }
    expect(pace.limit).toBe(8);
    rush(pace, 100, 6);
    expect(pace.limit).toBeGreaterThan(80);
  });
});
