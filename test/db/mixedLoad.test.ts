import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import type { ClaimRequest } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { conflicts } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { recordPayment } from '../../db/recordPayment.js';
import { describeEachPostgres } from '../setup/database.js';
import { audit } from './audit.js';
import { openShop } from './shop.js';
import type { Shop } from './shop.js';

/** A small generator of numbers from a seed, so that a failing history can be asked for again. */
function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

describeEachPostgres('mixed load', (version) => {
  let shop: Shop;
  beforeAll(async () => {
    // As many connections as workers: the locks are to be contended, not the pools.
    shop = await openShop(version, {
      connections: { claims: 12, changes: 12, reads: 2 },
      connectWithinMs: 20_000,
    });
  });
  afterAll(() => shop.close());

  it('after 2,400 claims, payments at the deadline, expiries, cancels, extends and adjustments at once every count equals its records, and nothing deadlocked (R01, R23, B02, B05)', async () => {
    const seed = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000);
    const roll = dice(seed);
    const pick = <T>(list: T[]): T => list[Math.floor(roll() * list.length)]!;
    const by = {
      latePayment: 'accept_if_available' as const,
      maxExtensions: 5,
      holdSeconds: 1,
      maxHoldSeconds: 30,
    };
    const skus = [
      await shop.product([6, 6, 6], { ...by, perBuyerLimit: 4, safetyStock: [1] }),
      await shop.product([15], { ...by, perBuyerLimit: 3 }),
      await shop.product([3, 3, 3, 3], { ...by, allocation: 'spread', latePayment: 'refund' }),
    ];
    const holds: { request: ClaimRequest; endsAt: number }[] = [];
    const before = conflicts.repeated;
    const seen: Record<string, number> = {};
    const note = (what: string, answer: { outcome: string }) => {
      const key = `${what} ${answer.outcome}`;
      seen[key] = (seen[key] ?? 0) + 1;
    };
    const later = () => shop.now(3500);

    // Holds last 1 s at the function's grain, so the clock runs ahead, 120 ms every ten calls.
    let left = 2400;
    const worker = async () => {
      while (left-- > 0) {
        const dieRoll = roll();
        const known = holds.length > 0 ? pick(holds.slice(roll() < 0.5 ? -8 : -60)) : undefined;
        if (dieRoll < 0.45 || known === undefined) {
          const lines = [{ sku: pick(skus), quantity: 1 + Math.floor(roll() * 2) }];
          if (roll() < 0.4) lines.push({ sku: pick(skus), quantity: 1 });
          const merged = Object.fromEntries(lines.map((line) => [line.sku, line.quantity]));
          const request = await shop.request(merged, {
            buyerId: `buyer-${Math.floor(roll() * 12)}`,
            holdSeconds: 1,
            order: roll() < 0.3,
            claimDeadline: await later(),
          });
          const answer = await claim(shop.db, request);
          note('claim', answer);
          if (answer.outcome === 'HELD')
            holds.push({ request, endsAt: Date.parse(answer.expiresAt) });
          if (roll() < 0.1)
            expect((await claim(shop.db, request)).outcome).toMatch(
              /ALREADY|INSUFFICIENT|LIMIT|LATE|HELD/,
            );
        } else if (dieRoll < 0.7) {
          const payment = {
            provider: 'test',
            paymentId: roll() < 0.2 ? `second-${known.request.holdId}` : known.request.holdId,
            eventId: null,
            status: 'succeeded' as const,
            holdId: known.request.holdId,
            orderNumber: null,
            amountMinor: 1,
            currency: 'EUR',
            payload: null,
          };
          note('pay', await recordPayment(shop.db, payment));
          note('confirm', await confirm(shop.db, known.request.holdId, payment));
        } else if (dieRoll < 0.83) note('expire', await expire(shop.db, known.request.holdId));
        else if (dieRoll < 0.89)
          note('cancel', await cancel(shop.db, known.request.holdId, 'changed my mind', 'buyer'));
        else if (dieRoll < 0.95)
          note('extend', await extend(shop.db, known.request.holdId, 1, randomUUID(), 'buyer'));
        else {
          const sku = pick(skus);
          const change = {
            sku,
            bin: 'b1',
            reason: 'count',
            actor: 'operator',
            requestId: randomUUID(),
            reference: null,
          };
          note('adjust', await adjust(shop.db, { ...change, delta: roll() < 0.5 ? 1 : -1 }));
        }
        if (left % 10 === 0) {
          await shop.query(
            `update tahan.test_clock set shift = shift + interval '120 milliseconds'`,
          );
        }
      }
    };
    await Promise.all(Array.from({ length: 24 }, worker));

    // Every pending payment gets its confirm, as the workflow would ask; then the books must agree.
    for (const { provider, payment_id, hold_id } of await shop.query<{
      provider: string;
      payment_id: string;
      hold_id: string;
    }>(
      `select provider, payment_id, hold_id from tahan.payments where status = 'succeeded' and settlement is null`,
    )) {
      await confirm(shop.db, hold_id, { provider, paymentId: payment_id });
    }
    expect({ seed, violations: await audit(shop.url) }).toEqual({ seed, violations: {} });
    expect({ seed, conflicts: conflicts.repeated - before }).toEqual({ seed, conflicts: 0 });
    // A load that never succeeds, is never refused and never reclaims proves nothing.
    for (const vital of [
      'claim HELD',
      'claim INSUFFICIENT_STOCK',
      'confirm CONFIRMED',
      'expire EXPIRED',
      'cancel CANCELLED',
      'extend EXTENDED',
    ]) {
      expect(seen[vital] ?? 0, `${vital} with seed ${seed}`).toBeGreaterThan(0);
    }
    if (process.env['TAHAN_VERBOSE']) console.log(version, seed, seen);
  });
});
