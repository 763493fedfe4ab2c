import { describe, expect, it } from 'vitest';
import { Turns } from '../../activities/turns.js';

/** At a clock that stands still unless it is moved. */
function turns(perSecond: number) {
  const clock = { ms: 1_000_000_000_000 };
  return { clock, turns: new Turns(perSecond, () => clock.ms) };
}

/** How many of them fall into each second after the first one's. */
function perSecond(times: number[], from: number): number[] {
  const counts: number[] = [];
  for (const at of times) {
    const second = Math.floor((at - from) / 1000);
    counts[second] = (counts[second] ?? 0) + 1;
  }
  return counts;
}

describe('Turns', () => {
  it('F13: a hold that ends alone is looked at when it ends', () => {
    const { turns: alone } = turns(20);
    expect(alone.take(600_000)).toBe(600_000);
    expect(alone.take(601_234.5)).toBe(601_234.5);
  });

  it('F13, F35: 1,000 that end at once get 20 turns in each of 50 seconds, none before the end, in the order of their claims', () => {
    const { turns: many } = turns(20);
    const given = Array.from({ length: 1000 }, () => many.take(600_000));
    expect(Math.min(...given)).toBe(600_000);
    expect(given).toEqual([...given].sort((a, b) => a - b));
    expect(perSecond(given, 600_000)).toEqual(Array.from({ length: 50 }, () => 20));
  });

  it('F13: others that end meanwhile fill what is free, and wait for no turn that is later than theirs', () => {
    const { turns: mixed } = turns(10);
    for (let i = 0; i < 20; i += 1) mixed.take(600_000);
    // The two seconds from 600 s on are full.
    expect(mixed.take(599_500)).toBe(599_500);
    expect(mixed.take(600_500)).toBe(602_000);
    expect(mixed.take(602_500)).toBe(602_500);
  });

  it('R51: holds that end as they were made, 100 in a second, are looked at within a second of their end', () => {
    const { turns: steady, clock } = turns(20);
    const late: number[] = [];
    for (let i = 0; i < 3000; i += 1) {
      clock.ms += 10;
      steady.claimed();
      late.push(steady.take(600_000) - 600_000);
    }
    expect(Math.max(...late)).toBeLessThan(1000);
  });

  it('F35: a pace that claims had more than a second ago is no pace for ends', () => {
    const { turns: later, clock } = turns(20);
    for (let i = 0; i < 400; i += 1) later.claimed();
    clock.ms += 1000;
    const given = Array.from({ length: 200 }, () => later.take(600_000));
    expect(perSecond(given, 600_000)).toEqual(Array.from({ length: 10 }, () => 20));
  });

  it('S10: turns that have passed are forgotten', () => {
    const { turns: long, clock } = turns(20);
    for (let i = 0; i < 5000; i += 1) {
      long.take(1000);
      clock.ms += 100;
    }
    expect(long.kept).toBeLessThan(250);
  });
});
