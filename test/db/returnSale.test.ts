import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { beginRefund } from '../../db/beginRefund.js';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { finishRefund } from '../../db/finishRefund.js';
import { listUnsentRefunds } from '../../db/openHolds.js';
import { readHold } from '../../db/readHold.js';
import { readPayment } from '../../db/readPayment.js';
import { release } from '../../db/release.js';
import { returnSale } from '../../db/returnSale.js';
import type { ReturnOfSale, ReturnOutcome } from '../../db/returnSale.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, statusOf, tally } from './books.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('return_sale', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 10 } });
  const price = { priceMinor: 500, currency: 'EUR' };

  /** Paid and confirmed: the hold and its payment. */
  async function sold(lines: Record<string, number>, order = false, amountMinor = 1000) {
    const id = await shop.hold(lines, { order });
    const total = order ? (await readHold(shop.db, id))!.order!.totalMinor! : amountMinor;
    const payment = await shop.pay(id, { amountMinor: total });
    expect((await confirm(shop.db, id, payment)).outcome).toBe('CONFIRMED');
    return { id, payment };
  }
  const back = (
    holdId: string,
    lines: Record<string, number> | null,
    rest: Partial<ReturnOfSale> = {},
  ): Promise<ReturnOutcome> =>
    returnSale(shop.db, {
      holdId,
      lines: lines && Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
      reason: 'does not fit',
      actor: 'operator:ann',
      requestId: randomUUID(),
      restock: true,
      refundMinor: null,
      ...rest,
    });
  const refundsOf = async (payment: { provider: string; paymentId: string }) =>
    (await readPayment(shop.db, payment))!.refunds.map(({ cause, state, amountMinor }) => [
      cause,
      state,
      amountMinor,
    ]);

  it('R09: everything comes back to the bins it was sold from, with one refund of what was paid, in one step; a second return finds nothing', async () => {
    const sku = await shop.product([2, 2], price);
    const { id, payment } = await sold({ [sku]: 3 }, true);
    expect(await bins(shop, sku)).toEqual([
      [0, 0, 2],
      [1, 0, 1],
    ]);
    expect(await back(id, null, { requestId: 'all' })).toEqual({
      outcome: 'RETURNED',
      lines: [{ sku, quantity: 3 }],
      restock: true,
      refund: {
        provider: 'test',
        paymentId: payment.paymentId,
        cause: 'return:all',
        amountMinor: 1500,
        currency: 'EUR',
      },
      noRefund: null,
    });
    expect(await bins(shop, sku)).toEqual([
      [2, 0, 0],
      [2, 0, 0],
    ]);
    expect((await ledger(shop, { hold: id })).slice(-2)).toEqual(['return 2 b1', 'return 1 b2']);
    expect(await refundsOf(payment)).toEqual([['return:all', 'REQUESTED', 1500]]);
    expect(await readHold(shop.db, id)).toMatchObject({
      status: 'CONFIRMED',
      lines: [{ quantity: 3, returned: 3 }],
      order: { totalMinor: 1500, status: 'paid' },
    });
    expect(await back(id, null)).toEqual({ outcome: 'ALREADY_RETURNED' });
    expect(await back(id, { [sku]: 1 })).toEqual({ outcome: 'ALREADY_RETURNED' });
    expect(await listUnsentRefunds(shop.db)).toContainEqual({
      provider: 'test',
      paymentId: payment.paymentId,
      holdId: id,
      cause: 'return:all',
      amountMinor: 1500,
      currency: 'EUR',
    });
  });

  it('R09: a part comes back at its price in the order, last allocated first; more than is left is refused; without lines the rest comes back', async () => {
    const [p, q] = [
      await shop.product([2, 2], price),
      await shop.product([5], { ...price, priceMinor: 70 }),
    ];
    const { id, payment } = await sold({ [p]: 3, [q]: 2 }, true);
    expect(await back(id, { [p]: 1, [q]: 1 }, { requestId: 'one' })).toMatchObject({
      refund: { amountMinor: 570 },
    });
    expect(await bins(shop, p)).toEqual([
      [0, 0, 2],
      [2, 0, 0],
    ]);
    const before = await everything(shop);
    expect(await back(id, { [p]: 3, [q]: 1 })).toEqual({
      outcome: 'INVALID_QUANTITY',
      lines: [{ sku: p, requested: 3, sold: 2 }],
    });
    expect(await back(id, { none: 1 })).toMatchObject({ lines: [{ sku: 'none', sold: 0 }] });
    expect(await everything(shop)).toEqual(before);
    expect(await back(id, null, { requestId: 'rest' })).toMatchObject({
      lines: expect.arrayContaining([
        { sku: p, quantity: 2 },
        { sku: q, quantity: 1 },
      ]) as unknown,
      refund: { amountMinor: 1070 },
    });
    expect(await counts(shop, p)).toMatchObject({ available: 4, sold: 0 });
    expect(await counts(shop, q)).toMatchObject({ available: 5, sold: 0 });
    expect(await refundsOf(payment)).toEqual([
      ['return:one', 'REQUESTED', 570],
      ['return:rest', 'REQUESTED', 1070],
    ]);
  });

  it('R09: without restock the units stay off the shelf and counted as sold, no movement is written, and they can not come back twice', async () => {
    const sku = await shop.product([5], price);
    const { id } = await sold({ [sku]: 3 }, true);
    expect(await back(id, { [sku]: 2 }, { restock: false })).toMatchObject({
      restock: false,
      refund: { amountMinor: 1000 },
    });
    expect(await counts(shop, sku)).toEqual({ available: 2, held: 0, sold: 3, total: 5 });
    expect(await ledger(shop, { hold: id })).toEqual(['reserve 3 b1', 'confirm_sold 3 b1']);
    expect((await readHold(shop.db, id))!.lines).toMatchObject([{ quantity: 3, returned: 2 }]);
    expect(await back(id, { [sku]: 2 })).toMatchObject({ lines: [{ requested: 2, sold: 1 }] });
    expect((await back(id, { [sku]: 1 })).outcome).toBe('RETURNED');
    expect(await counts(shop, sku)).toEqual({ available: 3, held: 0, sold: 2, total: 5 });
  });

  it("R09: a return touches nobody else: neither the units that another buyer holds nor another hold's sale", async () => {
    const sku = await shop.product([4], price);
    const { id } = await sold({ [sku]: 2 }, true);
    const other = await sold({ [sku]: 1 }, true);
    const held = await shop.hold({ [sku]: 1 });
    const before = [await readHold(shop.db, held), await readHold(shop.db, other.id)];
    await back(id, null);
    const after = [await readHold(shop.db, held), await readHold(shop.db, other.id)];
    const still = (hold: unknown) => ({
      ...(hold as object),
      serverTime: 0,
      remainingMs: 0,
      expiresInSeconds: 0,
    });
    expect(after.map(still)).toEqual(before.map(still));
    expect(await counts(shop, sku)).toEqual({ available: 2, held: 1, sold: 1, total: 4 });
  });

  it('R09: only a confirmed hold is returned; a reason is needed, also at the function', async () => {
    const sku = await shop.product([9]);
    const hold = await shop.hold({ [sku]: 1 });
    const not = (status: string) => ({ outcome: 'NOT_CONFIRMED', status });
    expect(await back(hold, null)).toEqual(not('HELD'));
    await cancel(shop.db, hold, 'no more', 'buyer');
    expect(await back(hold, null)).toEqual(not('CANCELLED'));
    expect(await back(randomUUID(), null)).toEqual({ outcome: 'MISSING' });
    const { id } = await sold({ [sku]: 1 });
    expect(await back(id, null, { reason: ' \n' })).toEqual({ outcome: 'REASON_REQUIRED' });
  });

  it('B18: odd quantities and amounts change nothing', async () => {
    const sku = await shop.product([9], price);
    const { id } = await sold({ [sku]: 2 }, true);
    const before = await everything(shop);
    for (const quantity of [0, -5, 1.5, null, Number.NaN]) {
      const lines = [{ sku, quantity: quantity as number }];
      await expect(back(id, null, { lines })).rejects.toThrow();
    }
    await expect(back(id, null, { lines: [] })).rejects.toThrow();
    await expect(back(id, null, { refundMinor: -1 })).rejects.toThrow();
    expect(await back(id, { [sku]: 2_147_483_647 })).toMatchObject({ outcome: 'INVALID_QUANTITY' });
    expect(await everything(shop)).toEqual(before);
  });

  it('R09: for a hold without a price a part needs an amount; all of it gives back what is left of the money', async () => {
    const sku = await shop.product([9]);
    const { id, payment } = await sold({ [sku]: 3 });
    expect(await back(id, { [sku]: 1 })).toEqual({
      outcome: 'REFUND_REQUIRED',
      leftMinor: 1000,
      currency: 'EUR',
    });
    expect(await back(id, { [sku]: 1 }, { refundMinor: 1001 })).toEqual({
      outcome: 'REFUND_TOO_LARGE',
      amountMinor: 1001,
      leftMinor: 1000,
      currency: 'EUR',
    });
    expect(await back(id, { [sku]: 1 }, { refundMinor: 300 })).toMatchObject({
      refund: { amountMinor: 300 },
    });
    expect(await back(id, { [sku]: 1 }, { refundMinor: 0, requestId: 'free' })).toMatchObject({
      outcome: 'RETURNED',
      refund: null,
      noRefund: 'NOT_ASKED',
    });
    expect(await back(id, { [sku]: 1 })).toMatchObject({ refund: { amountMinor: 700 } });
    expect((await refundsOf(payment)).map(([, , amount]) => amount)).toEqual([300, 700]);
  });

  it('R09: a fee may be kept, and never more goes back than was paid', async () => {
    const sku = await shop.product([9], price);
    const { id, payment } = await sold({ [sku]: 2 }, true);
    expect(await back(id, { [sku]: 1 }, { refundMinor: 900 })).toMatchObject({
      refund: { amountMinor: 900 },
    });
    // The price of the other one is more than is left.
    expect(await back(id, null)).toMatchObject({ outcome: 'REFUND_TOO_LARGE', leftMinor: 100 });
    expect(await back(id, null, { refundMinor: 100 })).toMatchObject({
      refund: { amountMinor: 100 },
    });
    expect((await refundsOf(payment)).length).toBe(2);
  });

  it('R09: money that the provider took back before is not sent again, and the answer says so', async () => {
    const sku = await shop.product([9], price);
    const { id, payment } = await sold({ [sku]: 2 }, true);
    await shop.pay(id, { paymentId: payment.paymentId, status: 'refunded' });
    expect(await back(id, null, { refundMinor: 5 })).toMatchObject({
      outcome: 'RETURNED',
      refund: null,
      noRefund: 'TAKEN_BACK',
    });
    expect(await refundsOf(payment)).toEqual([]);
    // Reported after the return, before the call: it is not called any more.
    const later = await sold({ [sku]: 2 }, true);
    await back(later.id, { [sku]: 1 }, { requestId: 'half' });
    await shop.pay(later.id, { paymentId: later.payment.paymentId, status: 'refunded' });
    expect(await beginRefund(shop.db, later.payment, 'return:half')).toEqual({
      outcome: 'DONE',
      state: 'NOT_NEEDED',
    });
  });

  it('R09: the provider reports the money that we sent back for returns: nothing is left to look at; a report of more than that is', async () => {
    const sku = await shop.product([9], price);
    const { id, payment } = await sold({ [sku]: 2 }, true);
    const report = () => shop.pay(id, { paymentId: payment.paymentId, status: 'refunded' });
    for (const requestId of ['a', 'b']) {
      await back(id, { [sku]: 1 }, { requestId });
      await beginRefund(shop.db, payment, `return:${requestId}`);
    }
    await finishRefund(shop.db, payment, 'return:a', { state: 'EXECUTED', providerRef: 're_1' });
    expect(await report()).toMatchObject({ status: 'refunded', settlement: 'APPLIED' });
    const half = await sold({ [sku]: 2 }, true);
    await back(half.id, { [sku]: 1 }, { requestId: 'a' });
    await beginRefund(shop.db, half.payment, 'return:a');
    const more = await shop.pay(half.id, {
      paymentId: half.payment.paymentId,
      status: 'refunded',
    });
    expect(more).toMatchObject({ settlement: 'NEEDS_REVIEW', settlementReason: 'RETURNED' });
  });

  it('A7, B19: a return that is repeated with its request id, also while the first one runs, happens once; the id stands for nothing else', async () => {
    const sku = await shop.product([9], price);
    const { id, payment } = await sold({ [sku]: 3 }, true);
    const first = await other(
      shop,
      `select tahan.return_sale($1, $2, 'does not fit', 'operator:ann', 'same', true, null)`,
      [id, JSON.stringify([{ sku, quantity: 1 }])],
    );
    const repeats = atOnce(4, () => back(id, { [sku]: 1 }, { requestId: 'same' }));
    await whenWaiting(shop, 'tahan.return_sale', 4);
    await first.commit();
    expect(tally(await repeats)).toEqual({ RETURNED: 4 });
    for (const rest of [{ restock: false }, { refundMinor: 1 }, { reason: 'other' }]) {
      expect(await back(id, { [sku]: 1 }, { requestId: 'same', ...rest })).toEqual({
        outcome: 'KEY_REUSED',
      });
    }
    expect(await back(id, null, { requestId: 'same' })).toEqual({ outcome: 'KEY_REUSED' });
    expect(await counts(shop, sku)).toMatchObject({ available: 7, sold: 2 });
    expect(await refundsOf(payment)).toEqual([['return:same', 'REQUESTED', 500]]);
  });

  it('R09: 20 returns at once, of 2 of 3 units each and under keys of their own: one of them happens', async () => {
    const sku = await shop.product([60], price);
    const sales = await atOnce(20, () => sold({ [sku]: 3 }, true));
    const answers = await Promise.all(
      sales.flatMap(({ id }) => [back(id, { [sku]: 2 }), back(id, { [sku]: 2 })]),
    );
    expect(tally(answers)).toEqual({ RETURNED: 20, INVALID_QUANTITY: 20 });
    expect(await counts(shop, sku)).toMatchObject({ available: 40, sold: 20 });
    for (const { payment } of sales)
      expect((await refundsOf(payment)).map(([, , amount]) => amount)).toEqual([1000]);
  });

  it('R09: what the provider refused is asked for again by the return itself, with the same key, unless the money has gone elsewhere', async () => {
    const sku = await shop.product([9], price);
    const { id, payment } = await sold({ [sku]: 2 }, true);
    const again = () => back(id, { [sku]: 1 }, { requestId: 'one' });
    await again();
    const { key } = (await readPayment(shop.db, payment))!.refunds[0]!;
    const refuse = async () => {
      await beginRefund(shop.db, payment, 'return:one');
      await finishRefund(shop.db, payment, 'return:one', { state: 'REFUSED', detail: 'closed' });
    };
    await refuse();
    expect((await again()).outcome).toBe('RETURNED');
    expect(await refundsOf(payment)).toEqual([['return:one', 'REQUESTED', 500]]);
    expect(await beginRefund(shop.db, payment, 'return:one')).toMatchObject({
      outcome: 'CALL',
      key,
      calledBefore: true,
      reason: 'RETURN',
    });
    await finishRefund(shop.db, payment, 'return:one', { state: 'REFUSED', detail: 'closed' });
    await back(id, null, { refundMinor: 800, requestId: 'two' });
    expect((await again()).outcome).toBe('RETURNED');
    expect(await refundsOf(payment)).toEqual([
      ['return:one', 'REFUSED', 500],
      ['return:two', 'REQUESTED', 800],
    ]);
    expect(await counts(shop, sku)).toMatchObject({ available: 9, sold: 0 });
  });

  it('B17: a returned unit gives the allowance back, with and without restock', async () => {
    const sku = await shop.product([9], { perBuyerLimit: 2 });
    const buyerId = randomUUID();
    const id = await shop.hold({ [sku]: 2 }, { buyerId });
    await confirm(shop.db, id, await shop.pay(id));
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('BUYER_LIMIT');
    await back(id, { [sku]: 1 }, { refundMinor: 0, restock: false });
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('HELD');
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('BUYER_LIMIT');
  });

  it('R09, B13: of a hold that was released in part and accepted late, what was sold comes back and no more', async () => {
    const sku = await shop.product([2, 2], { ...price, latePayment: 'accept_if_available' });
    const id = await shop.hold({ [sku]: 4 }, { order: true });
    const lines = [{ sku, quantity: 1 }];
    await release(shop.db, id, { lines, reason: 'r', actor: 'a', requestId: 'r' });
    await shop.shiftClock(601_000);
    await expire(shop.db, id);
    const payment = await shop.pay(id, { amountMinor: 1500 });
    expect(await confirm(shop.db, id, payment)).toEqual({ outcome: 'CONFIRMED', late: true });
    expect(await back(id, { [sku]: 4 })).toMatchObject({ lines: [{ sold: 3 }] });
    expect(await back(id, null)).toMatchObject({ refund: { amountMinor: 1500 } });
    expect(await counts(shop, sku)).toEqual({ available: 4, held: 0, sold: 0, total: 4 });
    expect(await statusOf(shop, id)).toBe('CONFIRMED');
  });
});
