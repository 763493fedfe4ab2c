import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, ledger, statusOf, tally } from './books.js';
import { atOnce, claimCall, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('claim', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8 }, connectWithinMs: 20_000 });

  it('R01, R32: a checkout moves units from available to held, payment moves them from held to sold, and the total never changes', async () => {
    const sku = await shop.product([10]);
    const hold = await shop.hold({ [sku]: 3 });
    expect(await counts(shop, sku)).toEqual({ available: 7, held: 3, sold: 0, total: 10 });
    await confirm(shop.db, hold, await shop.pay(hold));
    expect(await counts(shop, sku)).toEqual({ available: 7, held: 0, sold: 3, total: 10 });
    expect(await ledger(shop, { sku })).toEqual(['reserve 3 b1', 'confirm_sold 3 b1']);
  });

  it('R02: a hold shows its id, product, buyer, status and end, and ends as CONFIRMED, CANCELLED or EXPIRED once', async () => {
    const sku = await shop.product([9], { holdSeconds: 600 });
    const buyerId = 'anna';
    const ids = [];
    for (const status of ['CONFIRMED', 'CANCELLED', 'EXPIRED']) {
      const id = await shop.hold({ [sku]: 1 }, { buyerId });
      const hold = await readHold(shop.db, id);
      expect(hold).toMatchObject({ id, buyerId, status: 'HELD', expiresInSeconds: 600 });
      expect(hold?.lines).toMatchObject([{ sku, quantity: 1, allocations: [{ bin: 'b1' }] }]);
      expect(Date.parse(hold!.expiresAt!) - Date.parse(hold!.createdAt)).toBe(600_000);
      ids.push({ id, status });
    }
    const [paid, cancelled, overdue] = ids.map(({ id }) => id);
    const payment = await shop.pay(paid!);
    await confirm(shop.db, paid!, payment);
    await cancel(shop.db, cancelled!, 'changed my mind', 'buyer');
    await shop.shiftClock(601_000);
    await expire(shop.db, overdue!);
    for (const { id, status } of ids) {
      expect(await statusOf(shop, id)).toBe(status);
      expect(await expire(shop.db, id)).toEqual({ outcome: 'ALREADY', status });
      expect(await cancel(shop.db, id, 'again', 'buyer')).toEqual({ outcome: 'ALREADY', status });
      expect(await statusOf(shop, id)).toBe(status);
    }
    expect(await counts(shop, sku)).toEqual({ available: 8, held: 0, sold: 1, total: 9 });
  });

  it('R03, B11c: units and hold are written in one transaction; nobody sees one without the other, and a broken connection leaves neither', async () => {
    const sku = await shop.product([1]);
    const before = await everything(shop);
    const request = await shop.request({ [sku]: 1 });
    const first = await other<{ outcome: string }>(shop, ...claimCall(request));
    expect(first.answer.outcome).toBe('HELD');
    expect(await everything(shop)).toEqual(before);
    await first.rollback();
    expect(await everything(shop)).toEqual(before);
    expect((await claim(shop.db, request)).outcome).toBe('HELD');
  });

  it('R08: the same claim twenty times at once is one hold, and so is any repeat: after its deadline and after its end', async () => {
    const sku = await shop.product([5]);
    const request = await shop.request({ [sku]: 1 });
    const answers = await atOnce(20, () => claim(shop.db, request));
    expect(tally(answers)).toEqual({ HELD: 1, ALREADY: 19 });
    expect(new Set(answers.map((answer) => (answer as { holdId: string }).holdId)).size).toBe(1);

    await shop.shiftClock(60_000);
    expect(await claim(shop.db, request)).toMatchObject({ outcome: 'ALREADY', status: 'HELD' });
    await cancel(shop.db, request.holdId, 'changed my mind', 'buyer');
    expect(await claim(shop.db, request)).toMatchObject({
      outcome: 'ALREADY',
      holdId: request.holdId,
      status: 'CANCELLED',
    });
    expect(await counts(shop, sku)).toMatchObject({ available: 5, held: 0 });
    expect(await ledger(shop, { sku })).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });

  it('R40: when the first of two claims for the last unit gives up, the second gets it', async () => {
    const sku = await shop.product([1]);
    const first = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
    const second = shop.claim({ [sku]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    await first.rollback();
    expect((await second).outcome).toBe('HELD');
  });

  it('B01: of 50 buyers at once one gets the only unit, in every round; 7 units make three buyers of 2', async () => {
    const patient = { claimDeadline: await shop.now(60_000) };
    for (let round = 1; round <= 3; round += 1) {
      const sku = await shop.product([1]);
      const answers = await atOnce(50, () => shop.claim({ [sku]: 1 }, patient));
      expect(tally(answers)).toEqual({ HELD: 1, INSUFFICIENT_STOCK: 49 });
      expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 1 });
    }
    const sku = await shop.product([7]);
    const answers = await atOnce(50, () => shop.claim({ [sku]: 2 }, patient));
    expect(tally(answers)).toEqual({ HELD: 3, INSUFFICIENT_STOCK: 47 });
    expect(await counts(shop, sku)).toMatchObject({ available: 1, held: 6 });
  });
});
