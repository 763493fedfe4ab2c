import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { readHold } from '../../db/readHold.js';
import { readMovements } from '../../db/readMovements.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, tally } from './books.js';
import { atOnce } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('cancel', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  it('R09: an open hold is cancelled and its units go back to exactly their bins; a paid one is not, that is a return', async () => {
    const sku = await shop.product([2, 2]);
    const [open, paid] = [await shop.hold({ [sku]: 3 }), await shop.hold({ [sku]: 1 })];
    await confirm(shop.db, paid, await shop.pay(paid));
    expect(await cancel(shop.db, open, 'changed my mind', 'buyer')).toEqual({
      outcome: 'CANCELLED',
    });
    const before = await everything(shop);
    expect(await cancel(shop.db, paid, 'changed my mind', 'buyer')).toEqual({
      outcome: 'ALREADY',
      status: 'CONFIRMED',
    });
    expect(await cancel(shop.db, randomUUID(), 'x', 'buyer')).toEqual({ outcome: 'MISSING' });
    expect(await everything(shop)).toEqual(before);
    expect(await bins(shop, sku)).toEqual([
      [2, 0, 0],
      [1, 0, 1],
    ]);
  });

  it('R35: the reason and who asked are kept with the hold and with each movement', async () => {
    const sku = await shop.product([1, 1]);
    const hold = await shop.hold({ [sku]: 2 });
    await cancel(shop.db, hold, 'failed the fraud check', 'operator mia');
    expect(await readHold(shop.db, hold)).toMatchObject({ reason: 'failed the fraud check' });
    const { items } = await readMovements(shop.db, {
      holdId: hold,
      type: 'release_reservation',
      limit: 10,
    });
    const entry = { reason: 'failed the fraud check', actor: 'operator mia', quantity: 1 };
    expect(items).toMatchObject([entry, entry]);
  });

  it('R09, R35: an overdue hold whose expiry has not run may still be cancelled; one that was paid in time may not', async () => {
    const sku = await shop.product([2]);
    const [unpaid, paid] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
    const payment = await shop.pay(paid);
    await shop.shiftClock(601_000);
    expect((await cancel(shop.db, unpaid, 'x', 'buyer')).outcome).toBe('CANCELLED');
    expect((await cancel(shop.db, paid, 'x', 'buyer')).outcome).toBe('PAYMENT_PENDING');
    await confirm(shop.db, paid, payment);
  });

  it('B12a: ten cancels at once give back once: from 100 back to exactly 100', async () => {
    const sku = await shop.product([100]);
    const hold = await shop.hold({ [sku]: 1 });
    const answers = await atOnce(10, () => cancel(shop.db, hold, 'changed my mind', 'buyer'));
    expect(tally(answers)).toEqual({ CANCELLED: 1, ALREADY: 9 });
    expect(await counts(shop, sku)).toEqual({ available: 100, held: 0, sold: 0, total: 100 });
    expect(await ledger(shop, { sku })).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });

  it('B12b: a cancel and an expiry in the same moment give back once, in 50 rounds', async () => {
    const sku = await shop.product([100]);
    const holds = [];
    for (let round = 1; round <= 50; round += 1) holds.push(await shop.hold({ [sku]: 1 }));
    await shop.shiftClock(601_000);
    for (const hold of holds) {
      const both = [cancel(shop.db, hold, 'changed my mind', 'buyer'), expire(shop.db, hold)];
      const outcomes = (await Promise.all<{ outcome: string }>(both)).map(({ outcome }) => outcome);
      expect(['CANCELLED ALREADY', 'ALREADY EXPIRED']).toContain(outcomes.join(' '));
      expect(await ledger(shop, { hold })).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
    }
    expect(await counts(shop, sku)).toEqual({ available: 100, held: 0, sold: 0, total: 100 });
  });

  it('B12d: after a cancel nothing wakes the hold: extend, pay, confirm, expire and cancel change no number, and the money is refunded', async () => {
    const sku = await shop.product([100]);
    const hold = await shop.hold({ [sku]: 1 });
    await cancel(shop.db, hold, 'changed my mind', 'buyer');
    const before = await everything(shop);
    const already = { outcome: 'ALREADY', status: 'CANCELLED' };
    expect(await extend(shop.db, hold, 60, 'x', 'buyer')).toEqual(already);
    const payment = await shop.pay(hold);
    expect(await confirm(shop.db, hold, payment)).toMatchObject({ settlement: 'REFUND_DUE' });
    expect(await expire(shop.db, hold)).toEqual(already);
    expect(await cancel(shop.db, hold, 'again', 'buyer')).toEqual(already);
    expect(await everything(shop)).toEqual(before);
  });
});
