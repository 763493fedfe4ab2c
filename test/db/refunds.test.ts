import { expect, it } from 'vitest';
import { beginRefund } from '../../db/beginRefund.js';
import { confirm } from '../../db/confirm.js';
import { finishRefund } from '../../db/finishRefund.js';
import { readPayment } from '../../db/readPayment.js';
import { requestRefund } from '../../db/requestRefund.js';
import { describeEachPostgres } from '../setup/database.js';
import { codeOf, withClient } from './clients.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a refund', (version) => {
  const shop = sharedShop(version, { connections: { changes: 8 } });

  /** A payment that came late, settled REFUND_DUE. */
  async function late(amountMinor = 2500) {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 }, { holdSeconds: 1 });
    await shop.shiftClock(2_000);
    const payment = await shop.pay(hold, { amountMinor });
    await shop.shiftClock(0);
    expect(await confirm(shop.db, hold, payment)).toMatchObject({ settlement: 'REFUND_DUE' });
    return { ...payment, holdId: hold };
  }

  it('F18: its row stands before the first call, once for ever: ten requests at once make one, with one key', async () => {
    const payment = await late();
    const asked = await atOnce(10, () => requestRefund(shop.db, payment));
    const due = { outcome: 'REQUESTED', cause: 'settlement', amountMinor: 2500, currency: 'EUR' };
    expect(asked).toEqual(Array.from({ length: 10 }, () => due));
    const shown = await readPayment(shop.db, payment);
    expect(shown?.refunds).toMatchObject([
      { cause: 'settlement', state: 'REQUESTED', amountMinor: 2500, calls: 0, firstCalledAt: null },
    ]);
    expect(shown!.refunds[0]!.key).toMatch(/^tahan-[0-9a-f]{64}$/);
  });

  it('F18: each call is marked before it is made, with the same key; the first alone is told that none was before', async () => {
    const payment = await late();
    expect(await beginRefund(shop.db, payment, 'settlement')).toEqual({ outcome: 'MISSING' });
    await requestRefund(shop.db, payment);
    const calls = [];
    for (let call = 1; call <= 3; call += 1)
      calls.push(await beginRefund(shop.db, payment, 'settlement'));
    const { key } = (await readPayment(shop.db, payment))!.refunds[0]!;
    const { paymentId, holdId } = payment;
    const call = { outcome: 'CALL', paymentId, holdId, amountMinor: 2500, currency: 'EUR', key };
    expect(calls).toEqual(
      [false, true, true].map((calledBefore) => ({ ...call, reason: 'LATE', calledBefore })),
    );
    expect((await readPayment(shop.db, payment))!.refunds).toMatchObject([
      { state: 'CALLED', calls: 3 },
    ]);
  });

  it('F18: what the provider executed is REFUNDED for ever; a later answer, request or call changes nothing', async () => {
    const payment = await late();
    await requestRefund(shop.db, payment);
    await beginRefund(shop.db, payment, 'settlement');
    const executed = { state: 'EXECUTED', providerRef: 're_1' } as const;
    const done = await finishRefund(shop.db, payment, 'settlement', executed);
    expect(done).toEqual({ outcome: 'DONE', state: 'EXECUTED' });
    const settled = await readPayment(shop.db, payment);
    expect(settled).toMatchObject({ settlement: 'REFUNDED', settlementReason: 'LATE' });
    expect(settled!.refunds).toMatchObject([{ state: 'EXECUTED', providerRef: 're_1' }]);
    const refused = { state: 'REFUSED', detail: 'too late' } as const;
    const again = await finishRefund(shop.db, payment, 'settlement', refused);
    expect(again).toEqual({ outcome: 'ALREADY', state: 'EXECUTED' });
    const asked = await requestRefund(shop.db, payment);
    expect(asked).toEqual({ outcome: 'NOT_DUE', settlement: 'REFUNDED' });
    const called = await beginRefund(shop.db, payment, 'settlement');
    expect(called).toEqual({ outcome: 'DONE', state: 'EXECUTED' });
    expect(await readPayment(shop.db, payment)).toEqual(settled);
  });

  it('a refund that the provider refuses waits for an operator; asked for again it has the same key and knows of its calls', async () => {
    const payment = await late();
    await requestRefund(shop.db, payment);
    const first = await beginRefund(shop.db, payment, 'settlement');
    const refused = { state: 'REFUSED', detail: 'charge_disputed' } as const;
    await finishRefund(shop.db, payment, 'settlement', refused);
    const parked = await readPayment(shop.db, payment);
    expect(parked).toMatchObject({ settlement: 'NEEDS_REVIEW', settlementReason: 'LATE' });
    expect(parked!.refunds).toMatchObject([{ state: 'REFUSED', detail: 'charge_disputed' }]);
    expect(await requestRefund(shop.db, payment)).toMatchObject({ outcome: 'NOT_DUE' });
    await shop.query(`update tahan.payments set settlement = 'REFUND_DUE' where payment_id = $1`, [
      payment.paymentId,
    ]);
    expect(await requestRefund(shop.db, payment)).toMatchObject({ outcome: 'REQUESTED' });
    const second = await beginRefund(shop.db, payment, 'settlement');
    expect(second).toEqual({ ...first, calledBefore: true });
  });

  it('F22: money that the provider has sent back by itself needs no call; when a call had begun, it was ours', async () => {
    for (const [begun, state] of [
      [false, 'NOT_NEEDED'],
      [true, 'EXECUTED'],
    ] as const) {
      const payment = await late();
      await requestRefund(shop.db, payment);
      if (begun) await beginRefund(shop.db, payment, 'settlement');
      const { paymentId, holdId, amountMinor } = payment;
      await shop.pay(holdId, { paymentId, status: 'refunded', amountMinor });
      expect(await readPayment(shop.db, payment)).toMatchObject({ settlement: 'REFUNDED' });
      const called = await beginRefund(shop.db, payment, 'settlement');
      expect(called).toEqual({ outcome: 'DONE', state });
      expect(await requestRefund(shop.db, payment)).toMatchObject({ outcome: 'NOT_DUE' });
    }
  });

  it('a part that the provider sent back is kept as an event: the payment is still to be refunded', async () => {
    const payment = await late();
    const { paymentId, holdId } = payment;
    const part = { paymentId, status: 'refunded', amountMinor: 100 } as const;
    expect(await shop.pay(holdId, part)).toMatchObject({ outcome: 'DUPLICATE' });
    const shown = await readPayment(shop.db, payment);
    expect(shown).toMatchObject({ status: 'succeeded', settlement: 'REFUND_DUE' });
    expect(shown!.events.map(({ type }) => type).sort()).toEqual(['refunded', 'succeeded']);
  });

  it('a payment of nothing, and one that is not to be refunded, get no refund', async () => {
    const nothing = await late(0);
    const none = { outcome: 'NOT_DUE', settlement: 'REFUNDED' };
    expect(await requestRefund(shop.db, nothing)).toEqual(none);
    expect((await readPayment(shop.db, nothing))?.refunds).toEqual([]);
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const paid = await shop.pay(hold);
    const pending = { outcome: 'NOT_DUE', settlement: null };
    expect(await requestRefund(shop.db, paid)).toEqual(pending);
    await confirm(shop.db, hold, paid);
    const applied = { outcome: 'NOT_DUE', settlement: 'APPLIED' };
    expect(await requestRefund(shop.db, paid)).toEqual(applied);
    expect(await requestRefund(shop.db, { ...paid, paymentId: 'no such' })).toEqual({
      outcome: 'MISSING',
    });
  });

  it('never more goes back than came in, whoever writes it: the table itself refuses, and forgets nothing (F18)', async () => {
    const payment = await late(1000);
    const insert = (cause: string, amount: number) =>
      codeOf(
        shop.query(
          `insert into tahan.refunds (provider, payment_id, cause, amount_minor, key, created_at, updated_at)
           values ('test', $1, $2, $3, $2 || $1, now(), now())`,
          [payment.paymentId, cause, amount],
        ),
      );
    expect(await insert('whim', 1)).toBe('23514');
    expect(await insert('return:0', 0)).toBe('23514');
    await requestRefund(shop.db, payment);
    expect(await insert('return:1', 1)).toBe('TH905');
    expect(await insert('settlement', 1)).toBe('23505');
    await beginRefund(shop.db, payment, 'settlement');
    const executed = { state: 'EXECUTED', providerRef: 're_2' } as const;
    await finishRefund(shop.db, payment, 'settlement', executed);
    for (const change of [
      `update tahan.refunds set state = 'REQUESTED' where payment_id = $1`,
      `update tahan.refunds set amount_minor = 1 where payment_id = $1`,
    ])
      expect(await codeOf(shop.query(change, [payment.paymentId]))).toBe('TH902');
    for (const change of [`delete from tahan.refunds`, `truncate tahan.refunds`])
      expect(await codeOf(shop.query(change))).toBe('TH901');
    expect(await insert('return:3', 1)).toBe('TH905');
  });

  it('two writers at once do not add up to more than the payment either', async () => {
    const payment = await late(1000);
    const text = `insert into tahan.refunds (provider, payment_id, cause, amount_minor, key, created_at, updated_at)
      values ('test', $1, $2, 600, $2 || $1, now(), now())`;
    const first = await other(shop, text, [payment.paymentId, 'settlement']);
    const second = withClient(shop.url, (client) =>
      codeOf(client.query(text, [payment.paymentId, 'return:two'])),
    );
    await whenWaiting(shop, 'insert into tahan.refunds');
    await first.commit();
    expect(await second).toBe('TH905');
  });
});
