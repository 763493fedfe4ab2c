import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { conflicts, stockLockTimeoutMs } from '../../db/database.js';
import { extend } from '../../db/extend.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, tally } from './books.js';
import { atOnce, claimCall, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the order of locks', (version) => {
  const shop = sharedShop(version, {
    connections: { claims: 12, changes: 12 },
    connectWithinMs: 20_000,
  });

  it('R23: reserve racing release over two products in opposite order never deadlocks, in 200 rounds on two real connections', async () => {
    const [a, b] = [await shop.product([4, 4]), await shop.product([4, 4])];
    const [reserving, releasing] = [await shop.session(), await shop.session()];
    let open = await shop.hold({ [a]: 6, [b]: 6 });
    for (let round = 1; round <= 200; round += 1) {
      const lines = round % 2 ? { [b]: 2, [a]: 2 } : { [a]: 6, [b]: 6 };
      const request = await shop.request(lines);
      const [claimed, released] = await Promise.all([
        reserving.query<{ answer: { outcome: string } }>(...claimCall(request)),
        releasing.query<{ answer: { outcome: string } }>(
          `select tahan.cancel($1, 'changed my mind', 'buyer') as answer`,
          [open],
        ),
      ]);
      expect(released.rows[0]!.answer).toEqual({ outcome: 'CANCELLED' });
      open = claimed.rows[0]!.answer.outcome === 'HELD' ? request.holdId : await shop.hold(lines);
    }
  });

  it('R23: whoever of the two comes first at a bin, and whichever bin it is, both get through', async () => {
    const [a, b] = [await shop.product([3, 3]), await shop.product([3, 3])].sort() as [
      string,
      string,
    ];
    const before = conflicts.repeated;
    for (const [sku, bin] of [a, b].flatMap((sku) => [
      [sku, 'b1'] as const,
      [sku, 'b2'] as const,
    ])) {
      for (const inLine of [['claim', 'cancel'] as const, ['cancel', 'claim'] as const]) {
        const hold = await shop.hold({ [a]: 4, [b]: 4 });
        const request = await shop.request({ [b]: 1, [a]: 1 });
        const calls = {
          claim: () => claim(shop.db, request),
          cancel: () => cancel(shop.db, hold, 'changed my mind', 'buyer'),
        };
        const blocker = await otherOnBins(shop, sku, bin);
        const answers: Promise<{ outcome: string }>[] = [];
        for (const name of inLine) {
          answers.push(calls[name]());
          await whenWaiting(shop, `tahan.${name}`);
        }
        await blocker.rollback();
        expect(tally(await Promise.all(answers))).toEqual({ HELD: 1, CANCELLED: 1 });
        await cancel(shop.db, request.holdId, 'next round', 'test');
      }
    }
    expect(conflicts.repeated - before).toBe(0);
  });

  it('B02: 200 orders of two products in opposite order, with payments told twice, cancels, extends and adjustments at once, end with 100 sold of each, nothing held, no deadlock, and no call slower than its budget', async () => {
    const [a, b] = [await shop.product([250, 250]), await shop.product([250, 250])];
    const before = conflicts.repeated;
    const claimDeadline = await shop.now(60_000);
    let slowestMs = 0;
    /** With the wait for a connection. */
    const timed = async <T>(call: Promise<T>): Promise<T> => {
      const began = performance.now();
      const answer = await call;
      slowestMs = Math.max(slowestMs, performance.now() - began);
      return answer;
    };
    const order = async (index: number) => {
      const lines = index % 2 ? { [a]: 1, [b]: 1 } : { [b]: 1, [a]: 1 };
      const hold = await timed(shop.hold(lines, { order: true, claimDeadline }));
      const extended = timed(extend(shop.db, hold, 60, randomUUID(), 'buyer'));
      // Of either order of products, half are paid.
      if (index % 4 < 2) {
        const [cancelled] = await Promise.all([
          timed(cancel(shop.db, hold, 'changed my mind', 'buyer')),
          extended,
        ]);
        return cancelled;
      }
      const event = { paymentId: `pay-${index}`, eventId: `event-${index}` };
      const payment = await timed(shop.pay(hold, event));
      const [confirmed, , cancelled, renewed] = await Promise.all([
        timed(confirm(shop.db, hold, payment)),
        timed(shop.pay(hold, event)),
        timed(cancel(shop.db, hold, 'too slow', 'buyer')),
        extended,
      ]);
      expect(['PAYMENT_PENDING', 'ALREADY']).toContain(cancelled.outcome);
      expect(['EXTENDED', 'ALREADY']).toContain(renewed.outcome);
      return confirmed;
    };
    // Fifty buyers, four orders each: no call may wait 7 s for its connection, on a slow machine either.
    const orders = atOnce(50, async (buyer) => {
      const outcomes = [];
      for (let nth = 0; nth < 4; nth += 1) outcomes.push(await order(buyer + nth * 50));
      return outcomes;
    });
    // Bins of b first, then those of a.
    const adjusting = atOnce(20, (index) => {
      const [sku, bin] = [index % 2 ? a : b, index % 4 < 2 ? 'b2' : 'b1'];
      const change = { reason: 'count', actor: 'operator', reference: null };
      return timed(adjust(shop.db, { ...change, sku, bin, delta: 1, requestId: `count-${index}` }));
    });
    expect(tally((await orders).flat())).toEqual({ CANCELLED: 100, CONFIRMED: 100 });
    expect(tally(await adjusting)).toEqual({ DONE: 20 });
    for (const sku of [a, b]) {
      expect(await counts(shop, sku)).toEqual({ available: 410, held: 0, sold: 100, total: 510 });
    }
    expect(conflicts.repeated - before).toBe(0);
    expect(slowestMs).toBeLessThan(stockLockTimeoutMs({}));
  });
});
