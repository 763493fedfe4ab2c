import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { decidePayment } from '../../db/decidePayment.js';
import { expire } from '../../db/expire.js';
import { readPayment } from '../../db/readPayment.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, ledger, statusOf, tally } from './books.js';
import { atOnce, beingPaid, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a payment in review (R11)', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 8 } });

  /** A late payment of a hold of 1, parked for an operator; its hold expired or still overdue. */
  async function parked(sku: string, { expired = true, buyerId = randomUUID() as string } = {}) {
    const hold = await shop.hold({ [sku]: 1 }, { holdSeconds: 1, buyerId });
    await shop.shiftClock(2_000);
    if (expired) await expire(shop.db, hold);
    const payment = await shop.pay(hold);
    await shop.shiftClock(0);
    expect(await confirm(shop.db, hold, payment)).toMatchObject({ settlement: 'NEEDS_REVIEW' });
    return { hold, payment };
  }
  const decide = (
    payment: { provider: string; paymentId: string },
    decision: 'accept' | 'refund',
    rest: { requestId?: string; reason?: string } = {},
  ) => {
    const by = { reason: 'a good customer', actor: 'ann', requestId: randomUUID() as string };
    return decidePayment(shop.db, payment, { decision, ...by, ...rest });
  };
  const review = (settings = {}) => shop.product([1], { latePayment: 'review', ...settings });

  it('accepted, it confirms the expired hold out of what is there now; who decided and why is kept', async () => {
    const sku = await review();
    const { hold, payment } = await parked(sku);
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'ACCEPTED_LATE' });
    expect(await statusOf(shop, hold)).toBe('CONFIRMED');
    expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 0, sold: 1 });
    const moved = ['reserve', 'release_reservation', 'reserve', 'confirm_sold'];
    expect(await ledger(shop, { hold })).toEqual(moved.map((type) => `${type} 1 b1`));
    expect(await readPayment(shop.db, payment)).toMatchObject({
      settlement: 'ACCEPTED_LATE',
      review: { decision: 'accept', reason: 'a good customer', actor: 'ann' },
    });
  });

  it('accepted, it confirms a hold that is overdue but still HELD out of its own units', async () => {
    const sku = await review();
    const { hold, payment } = await parked(sku, { expired: false });
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'ACCEPTED_LATE' });
    expect(await ledger(shop, { hold })).toEqual(['reserve 1 b1', 'confirm_sold 1 b1']);
  });

  it('refused, it is to be refunded as REVIEWED, and the hold stays as it was', async () => {
    const { hold, payment } = await parked(await review());
    expect(await decide(payment, 'refund')).toEqual({ outcome: 'REFUND_DUE' });
    expect(await readPayment(shop.db, payment)).toMatchObject({
      settlement: 'REFUND_DUE',
      settlementReason: 'REVIEWED',
    });
    expect(await statusOf(shop, hold)).toBe('EXPIRED');
    const known = { outcome: 'ALREADY', settlement: 'REFUND_DUE' };
    expect(await decide(payment, 'accept')).toEqual(known);
  });

  it('what stock, limit, another payment or an ended hold do not allow leaves it in review, and it can be decided again', async () => {
    const sku = await review({ perBuyerLimit: 1 });
    const { hold, payment } = await parked(sku, { buyerId: 'rosa' });
    const rival = await shop.hold({ [sku]: 1 });
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'INSUFFICIENT_STOCK' });
    await cancel(shop.db, rival, 'gone', 'buyer');
    const second = await shop.hold({ [sku]: 1 }, { buyerId: 'rosa' });
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'BUYER_LIMIT', sku });
    await cancel(shop.db, second, 'gone', 'buyer');
    expect(await statusOf(shop, hold)).toBe('EXPIRED');
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'ACCEPTED_LATE' });

    const other = await review();
    const held = await parked(other, { expired: false });
    await cancel(shop.db, held.hold, 'gone', 'buyer');
    const closed = { outcome: 'HOLD_CLOSED', status: 'CANCELLED' };
    expect(await decide(held.payment, 'accept')).toEqual(closed);
    expect(await decide(held.payment, 'refund')).toEqual({ outcome: 'REFUND_DUE' });
  });

  it('A4: a payment in time that is pending goes first', async () => {
    const sku = await review();
    const { hold, payment } = await parked(sku, { expired: false });
    const inTime = await shop.pay(hold);
    const first = { provider: 'test', paymentId: inTime.paymentId };
    const pending = { outcome: 'PAYMENT_PENDING', payment: first };
    expect(await decide(payment, 'accept')).toEqual(pending);
    await confirm(shop.db, hold, inTime);
    const closed = { outcome: 'HOLD_CLOSED', status: 'CONFIRMED' };
    expect(await decide(payment, 'accept')).toEqual(closed);
    expect(await decide(payment, 'refund')).toEqual({ outcome: 'REFUND_DUE' });
  });

  it('A1: a decision that waited for the hold sees the payment that was recorded meanwhile', async () => {
    const sku = await review();
    const { hold, payment } = await parked(sku, { expired: false });
    const paying = await beingPaid(shop, hold);
    const deciding = decide(payment, 'accept');
    await whenWaiting(shop, 'tahan.decide_payment');
    await paying.commit();
    expect(await deciding).toMatchObject({ outcome: 'PAYMENT_PENDING' });
  });

  it('A7: repeated with its request id, also at the same moment, it decides once and answers the same; another decision under that id is KEY_REUSED', async () => {
    const sku = await review();
    const { payment } = await parked(sku);
    const same = { requestId: 'once' };
    const answers = await atOnce(5, () => decide(payment, 'accept', same));
    expect(tally(answers)).toEqual({ ACCEPTED_LATE: 5 });
    expect(await decide(payment, 'refund', same)).toEqual({ outcome: 'KEY_REUSED' });
    expect(await counts(shop, sku)).toMatchObject({ sold: 1 });
  });

  it('ten decisions of both kinds at once: one wins, the others find it', async () => {
    const { payment } = await parked(await review());
    const answers = await atOnce(10, (n) => decide(payment, n % 2 ? 'accept' : 'refund'));
    const won = answers.filter(({ outcome }) => outcome !== 'ALREADY');
    expect(won).toHaveLength(1);
    const settlement = won[0]!.outcome;
    expect(answers.filter(({ outcome }) => outcome === 'ALREADY')).toEqual(
      Array.from({ length: 9 }, () => ({ outcome: 'ALREADY', settlement })),
    );
  });

  it('money that came back for a paid hold is closed without a call, whatever is decided; the units stay sold', async () => {
    const sku = await review();
    const hold = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold);
    await confirm(shop.db, hold, payment);
    const { paymentId } = payment;
    await shop.pay(hold, { paymentId, eventId: null, status: 'refunded' });
    expect(await readPayment(shop.db, payment)).toMatchObject({ settlement: 'NEEDS_REVIEW' });
    expect(await decide(payment, 'accept')).toEqual({ outcome: 'REFUNDED' });
    expect(await statusOf(shop, hold)).toBe('CONFIRMED');
    expect(await readPayment(shop.db, payment)).toMatchObject({
      settlement: 'REFUNDED',
      settlementReason: 'RETURNED',
    });
  });

  it('a decision needs a reason; an unknown payment is MISSING; a settled one is left alone', async () => {
    const { payment } = await parked(await review());
    const blank = { outcome: 'REASON_REQUIRED' };
    expect(await decide(payment, 'accept', { reason: ' ' })).toEqual(blank);
    const missing = { outcome: 'MISSING' };
    expect(await decide({ ...payment, paymentId: 'no such' }, 'refund')).toEqual(missing);
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const paid = await shop.pay(hold);
    expect(await decide(paid, 'refund')).toEqual({ outcome: 'ALREADY', settlement: null });
    await confirm(shop.db, hold, paid);
    expect(await decide(paid, 'refund')).toEqual({ outcome: 'ALREADY', settlement: 'APPLIED' });
  });

  it('R26: a decision that waits too long for a bin is STOCK_LOCK_TIMEOUT and changes nothing', async () => {
    const sku = await review();
    const { payment } = await parked(sku);
    const blocker = await otherOnBins(shop, sku);
    const call = shop.query(
      `select tahan.decide_payment('test', $1, 'accept', 'x', 'ann', 'x', 100)`,
      [payment.paymentId],
    );
    await expect(call).rejects.toMatchObject({ code: 'TH003' });
    await blocker.rollback();
    expect(await readPayment(shop.db, payment)).toMatchObject({ settlement: 'NEEDS_REVIEW' });
  });
});
