import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, ledger, statusOf, tally } from './books.js';
import { atOnce } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a late payment', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 8 } });
  const accepting = { latePayment: 'accept_if_available' as const };
  const refunded = { outcome: 'TOO_LATE', settlement: 'REFUND_DUE', reason: 'LATE' };

  it('R11: under refund it is REFUND_DUE, under review it waits for an operator, whether or not the expiry has run', async () => {
    for (const [latePayment, settlement] of [
      ['refund', 'REFUND_DUE'],
      ['review', 'NEEDS_REVIEW'],
    ] as const) {
      const sku = await shop.product([2], { latePayment });
      const [overdue, expired] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
      await shop.shiftClock(601_000);
      await expire(shop.db, expired);
      for (const hold of [overdue, expired]) {
        const payment = await shop.pay(hold);
        const answer = { outcome: 'TOO_LATE', settlement, reason: 'LATE' };
        expect(await confirm(shop.db, hold, payment)).toEqual(answer);
        expect(await confirm(shop.db, hold, payment)).toEqual(answer);
      }
      expect(await expire(shop.db, overdue)).toEqual({ outcome: 'EXPIRED' });
      expect(await counts(shop, sku)).toMatchObject({ available: 2, held: 0, sold: 0 });
      await shop.shiftClock(0);
    }
  });

  it('R11: under accept_if_available it confirms a hold that is still HELD out of its own units', async () => {
    const sku = await shop.product([1], accepting);
    const hold = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(601_000);
    const payment = await shop.pay(hold);
    expect(payment).toMatchObject({ inTime: false, settlement: null });
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'CONFIRMED', late: true });
    expect(await ledger(shop, { hold })).toEqual(['reserve 1 b1', 'confirm_sold 1 b1']);
    expect((await readHold(shop.db, hold))?.payments).toMatchObject([
      { settlement: 'ACCEPTED_LATE', inTime: false },
    ]);
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'ALREADY_CONFIRMED' });
  });

  it('R11, R02: an EXPIRED hold claims its units again, from wherever they are now, and is then CONFIRMED for good', async () => {
    const sku = await shop.product([2, 2], accepting);
    const hold = await shop.hold({ [sku]: 2 });
    await shop.shiftClock(601_000);
    await expire(shop.db, hold);
    await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold);
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'CONFIRMED', late: true });
    expect(await ledger(shop, { hold })).toEqual([
      'reserve 2 b1',
      'release_reservation 2 b1',
      'reserve 1 b1',
      'reserve 1 b2',
      'confirm_sold 1 b1',
      'confirm_sold 1 b2',
    ]);
    expect((await readHold(shop.db, hold))?.lines[0]?.allocations).toEqual([
      { bin: 'b1', quantity: 1 },
      { bin: 'b2', quantity: 1 },
    ]);
    expect(await expire(shop.db, hold)).toEqual({ outcome: 'ALREADY', status: 'CONFIRMED' });
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'ALREADY_CONFIRMED' });
  });

  it('R11, B08: when the stock is gone, or safety stock keeps it, an EXPIRED hold stays expired and its payment is refunded, once', async () => {
    const sku = await shop.product([3], { ...accepting, safetyStock: [2] });
    const hold = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(601_000);
    await expire(shop.db, hold);
    const b = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold);
    expect(await confirm(shop.db, hold, payment)).toEqual(refunded);
    await cancel(shop.db, b, 'changed my mind', 'buyer');
    expect(await confirm(shop.db, hold, payment)).toEqual(refunded);
    expect(await statusOf(shop, hold)).toBe('EXPIRED');
    expect(await counts(shop, sku)).toEqual({ available: 3, held: 0, sold: 0, total: 3 });
  });

  it('R11, A6: it takes all of its products or none, and takes no overdue hold back', async () => {
    const [a, b] = [await shop.product([1], accepting), await shop.product([1], accepting)];
    const hold = await shop.hold({ [a]: 1, [b]: 1 });
    await shop.shiftClock(601_000);
    await expire(shop.db, hold);
    const overdue = await shop.hold({ [b]: 1 }, { holdSeconds: 1 });
    await shop.shiftClock(610_000);
    expect(await confirm(shop.db, hold, await shop.pay(hold))).toEqual(refunded);
    expect(await statusOf(shop, overdue)).toBe('HELD');
    expect(await counts(shop, a)).toMatchObject({ available: 1, held: 0, sold: 0 });
  });

  it('B08: a late payment and a claim of the last unit in the same moment: one owns it, the other is refused or refunded, in 20 rounds', async () => {
    for (let round = 1; round <= 20; round += 1) {
      const sku = await shop.product([1], accepting);
      const hold = await shop.hold({ [sku]: 1 }, { holdSeconds: 1 });
      await shop.shiftClock(round * 10_000);
      if (round % 2) await expire(shop.db, hold);
      const payment = await shop.pay(hold);
      const both = await Promise.all([confirm(shop.db, hold, payment), shop.claim({ [sku]: 1 })]);
      const outcome = both.map((answer) => answer.outcome).join(' ');
      expect(['CONFIRMED INSUFFICIENT_STOCK', 'TOO_LATE HELD']).toContain(outcome);
      const { held, sold } = await counts(shop, sku);
      expect(held + sold).toBe(1);
    }
  });

  it('R11: a payment for a CANCELLED or a REJECTED hold is refunded under every policy', async () => {
    for (const latePayment of ['refund', 'review', 'accept_if_available'] as const) {
      const sku = await shop.product([1], { latePayment });
      const cancelled = await shop.hold({ [sku]: 1 });
      await cancel(shop.db, cancelled, 'changed my mind', 'buyer');
      const rejected = await shop.request({ [sku]: 2 });
      expect((await claim(shop.db, rejected)).outcome).toBe('INSUFFICIENT_STOCK');
      for (const hold of [cancelled, rejected.holdId]) {
        const payment = await shop.pay(hold);
        expect(payment).toMatchObject({
          outcome: 'RECORDED',
          inTime: false,
          settlement: 'REFUND_DUE',
          settlementReason: 'LATE',
        });
        expect(await confirm(shop.db, hold, payment)).toEqual(refunded);
      }
      expect(await counts(shop, sku)).toMatchObject({ available: 1, sold: 0 });
    }
  });

  it('A4: money sent back before the confirmation leaves nothing pending and the hold waits on; after it, the hold stays sold and is NEEDS_REVIEW', async () => {
    const sku = await shop.product([2]);
    const [before, after] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
    const first = await shop.pay(before);
    const { paymentId } = first;
    expect(await shop.pay(before, { paymentId, status: 'refunded' })).toMatchObject({
      outcome: 'RECORDED',
      settlement: 'REFUNDED',
      settlementReason: 'RETURNED',
    });
    expect((await expire(shop.db, before)).outcome).toBe('NOT_DUE');
    expect(await shop.pay(before, { paymentId })).toMatchObject({
      outcome: 'DUPLICATE',
      status: 'refunded',
    });
    expect(await confirm(shop.db, before, first)).toMatchObject({
      outcome: 'TOO_LATE',
      settlement: 'REFUNDED',
    });
    expect((await cancel(shop.db, before, 'changed my mind', 'buyer')).outcome).toBe('CANCELLED');

    const second = await shop.pay(after);
    await confirm(shop.db, after, second);
    const returned = { paymentId: second.paymentId, status: 'refunded' as const };
    expect(await shop.pay(after, returned)).toMatchObject({
      settlement: 'NEEDS_REVIEW',
      settlementReason: 'RETURNED',
    });
    expect(await statusOf(shop, after)).toBe('CONFIRMED');
    expect(await confirm(shop.db, after, second)).toEqual({ outcome: 'ALREADY_CONFIRMED' });
    expect(await counts(shop, sku)).toMatchObject({ available: 1, sold: 1 });
  });

  it('A4: money sent back by the provider settles a refund that was due, with its reason kept, so that no second one is sent', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(601_000);
    const { paymentId, ...payment } = await shop.pay(hold);
    await confirm(shop.db, hold, { ...payment, paymentId });
    const back = await atOnce(3, () => shop.pay(hold, { paymentId, status: 'refunded' }));
    expect(tally(back)).toEqual({ RECORDED: 1, DUPLICATE: 2 });
    expect((await readHold(shop.db, hold))?.payments).toMatchObject([
      { status: 'refunded', settlement: 'REFUNDED', settlementReason: 'LATE' },
    ]);
  });

  it('F26: a buyer who checks out again replaces nothing: an open hold keeps its unit, an overdue one loses it, and money for it goes back', async () => {
    const sku = await shop.product([1]);
    const buyerId = 'two-tabs';
    const first = await shop.hold({ [sku]: 1 }, { buyerId });
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('INSUFFICIENT_STOCK');
    await shop.shiftClock(601_000);
    const second = await shop.hold({ [sku]: 1 }, { buyerId });
    expect(await confirm(shop.db, first, await shop.pay(first))).toEqual(refunded);
    expect(await confirm(shop.db, second, await shop.pay(second))).toMatchObject({
      outcome: 'CONFIRMED',
    });
    expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 0, sold: 1 });
    await shop.shiftClock(0);
  });
});
