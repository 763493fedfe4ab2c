import { expect, it } from 'vitest';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readHold } from '../../db/readHold.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, statusOf, tally } from './books.js';
import { atOnce, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a payment', (version) => {
  const shop = sharedShop(version, { connections: { changes: 8 } });
  const priced = { priceMinor: 1000, currency: 'EUR' };
  const order = { order: true };

  it('R05: a payment recorded before the end confirms the hold, also when the confirmation runs after the end', async () => {
    const sku = await shop.product([2]);
    const hold = await shop.hold({ [sku]: 2 });
    const payment = await shop.pay(hold);
    expect(payment).toMatchObject({ outcome: 'RECORDED', inTime: true, settlement: null });
    await shop.shiftClock(3_600_000);
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'CONFIRMED', late: false });
    expect(await counts(shop, sku)).toMatchObject({ held: 0, sold: 2 });
    expect((await readHold(shop.db, hold))?.payments).toMatchObject([
      { inTime: true, settlement: 'APPLIED', settlementReason: null },
    ]);
  });

  it('R05, R11: a payment that begins after the end is late although the expiry has not run: refused and REFUND_DUE, and the next buyer gets the units', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(601_000);
    const payment = await shop.pay(hold);
    expect(payment).toMatchObject({ outcome: 'RECORDED', inTime: false });
    const refused = { outcome: 'TOO_LATE', settlement: 'REFUND_DUE', reason: 'LATE' };
    expect(await confirm(shop.db, hold, payment)).toEqual(refused);
    expect(await expire(shop.db, hold)).toEqual({ outcome: 'EXPIRED' });
    expect(await confirm(shop.db, hold, payment)).toEqual(refused);
    await shop.hold({ [sku]: 1 });
  });

  it('R34: all lines are confirmed or none: when the second of two products fails, the first is not sold', async () => {
    const [a, b] = [await shop.product([3]), await shop.product([3])].sort() as [string, string];
    const hold = await shop.hold({ [a]: 1, [b]: 2 });
    const payment = await shop.pay(hold);
    const before = await everything(shop);
    await shop.query(
      `create function tahan.break() returns trigger language plpgsql as $$ begin raise exception 'broken'; end $$;
       create trigger broken before insert on tahan.movements for each row
         when (new.type = 'confirm_sold' and new.sku = '${b}') execute function tahan.break()`,
    );
    await expect(confirm(shop.db, hold, payment)).rejects.toThrow('broken');
    expect(await everything(shop)).toEqual(before);
    await shop.query('drop function tahan.break cascade');
    expect(await confirm(shop.db, hold, payment)).toMatchObject({ outcome: 'CONFIRMED' });
    expect([await counts(shop, a), await counts(shop, b)]).toMatchObject([
      { sold: 1 },
      { sold: 2 },
    ]);
  });

  it('A4, F23: a wrong amount or currency for an order, zero too, is refunded as MISMATCH, never keeps its units, and the hold waits on for the right one', async () => {
    const sku = await shop.product([3], priced);
    const hold = await shop.hold({ [sku]: 2 }, order);
    const wrong: Partial<PaymentEvent>[] = [
      { amountMinor: 1 },
      { amountMinor: 0 },
      { amountMinor: 2001 },
      { amountMinor: 2000, currency: 'USD' },
    ];
    for (const difference of wrong) {
      const payment = await shop.pay(hold, difference);
      expect(payment).toMatchObject({ settlement: 'REFUND_DUE', settlementReason: 'MISMATCH' });
      expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'MISMATCH' });
      expect((await expire(shop.db, hold)).outcome).toBe('NOT_DUE');
    }
    const right = await shop.pay(hold, { amountMinor: 2000 });
    expect(await confirm(shop.db, hold, right)).toMatchObject({ outcome: 'CONFIRMED' });

    const cheated = await shop.hold({ [sku]: 1 }, order);
    await shop.pay(cheated, { amountMinor: 1 });
    await shop.shiftClock(601_000);
    await shop.hold({ [sku]: 1 });
    expect(await statusOf(shop, cheated)).toBe('EXPIRED');
  });

  it('F23: a plain hold has no price: any amount confirms it; so does the number of an order in place of its id', async () => {
    const sku = await shop.product([9], priced);
    for (const amountMinor of [0, 1, 999_999]) {
      const hold = await shop.hold({ [sku]: 1 });
      const payment = await shop.pay(hold, { amountMinor, currency: 'JPY' });
      expect(await confirm(shop.db, hold, payment)).toMatchObject({ outcome: 'CONFIRMED' });
    }
    const hold = await shop.hold({ [sku]: 1 }, order);
    const { orderNumber } = (await readHold(shop.db, hold))!.order!;
    const payment = await shop.pay('', { holdId: null, orderNumber });
    expect(payment).toMatchObject({ outcome: 'RECORDED', holdId: hold });
    await confirm(shop.db, hold, payment);
    expect((await readHold(shop.db, hold))?.order?.status).toBe('paid');
  });

  it('F25: of five payments for one hold, confirmed at once, one owns it and four are SURPLUS and refunded; so is a sixth later', async () => {
    const sku = await shop.product([1], priced);
    const hold = await shop.hold({ [sku]: 1 }, order);
    const payments = await atOnce(5, () => shop.pay(hold));
    expect(payments.map(({ outcome }) => outcome)).toEqual(Array(5).fill('RECORDED'));
    const answers = await Promise.all(payments.map((payment) => confirm(shop.db, hold, payment)));
    expect(tally(answers)).toEqual({ CONFIRMED: 1, SURPLUS: 4 });
    const sixth = await shop.pay(hold);
    expect(sixth).toMatchObject({ settlement: 'REFUND_DUE', settlementReason: 'SURPLUS' });
    expect(await confirm(shop.db, hold, sixth)).toEqual({ outcome: 'SURPLUS' });
    expect(await counts(shop, sku)).toMatchObject({ sold: 1, held: 0 });
  });

  it('R05: a confirmation that waits for a bin holds the hold, and an expiry after the end finds it confirmed', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold);
    const blocker = await otherOnBins(shop, sku);
    const confirming = confirm(shop.db, hold, payment);
    await whenWaiting(shop, 'tahan.confirm');
    await shop.shiftClock(601_000);
    const expiring = expire(shop.db, hold);
    await whenWaiting(shop, 'tahan.expire');
    await blocker.rollback();
    expect(await confirming).toEqual({ outcome: 'CONFIRMED', late: false });
    expect(await expiring).toEqual({ outcome: 'ALREADY', status: 'CONFIRMED' });
  });
});
