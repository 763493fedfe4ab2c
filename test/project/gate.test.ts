import { describe, expect, it } from 'vitest';
import { Clock } from '../../api/clock.js';
import { Gate } from '../../api/gate.js';
import type { Reading, Readings } from '../../api/readings.js';

const one = [{ sku: 'A', quantity: 1 }];

/** A read that begins now. */
function reading(): Reading {
  const products = new Map([['A', { sku: 'A', sellable: 1000, more: false }]]);
  return { beganAt: performance.now(), products } as unknown as Reading;
}

describe('the gate (R14)', () => {
  it('F35: forgets claims that have ended also while nobody waits: each was looked at by every checkout after it', async () => {
    const gate = new Gate({ read: () => Promise.resolve(reading()) } as unknown as Readings, 50);
    for (let claims = 0; claims < 200; claims += 1)
      (await gate.pass(one, reading(), new Clock())).ended(true);
    expect(gate.state).toMatchObject({ running: 0, waiting: 0 });
    expect(gate.state.counted).toBeLessThan(10);
  });
});
