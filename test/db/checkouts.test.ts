import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { putBuyerRules } from '../../db/buyerRules.js';
import { claimBatch } from '../../db/claimBatch.js';
import { putCartLine } from '../../db/putCartLine.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readCheckouts } from '../../db/readCheckouts.js';
import { describeEachPostgres } from '../setup/database.js';
import { claimCall, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

const minutes = 60_000;
const by = { actor: 'test', reason: 'test' };

describeEachPostgres('the read in front of the claims', (version) => {
  const shop = sharedShop(version);
  const wanted = (
    buyerId: string,
    lines: Record<string, number> | null,
    holdId: string = randomUUID(),
  ) => ({
    holdId,
    buyerId,
    lines: lines && Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
  });
  const sellable = async (sku: string) => {
    const { products } = await readCheckouts(shop.db, [wanted('b', { [sku]: 1 })]);
    return products.map((product) => product.sellable);
  };

  it('R12, R36: what it calls sellable is what a claim gets: the next unit is refused', async () => {
    const sku = await shop.product([5, 3, 2], { safetyStock: [1, 9, 2], allocation: 'spread' });
    expect(await sellable(sku)).toEqual([4]);
    for (const left of [3, 2, 1, 0]) {
      await shop.hold({ [sku]: 1 });
      expect(await sellable(sku)).toEqual([left]);
    }
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('INSUFFICIENT_STOCK');
  });

  it('R07: units of overdue unpaid holds count, bin by bin beyond its safety stock; of one that a payment waits for they do not', async () => {
    const sku = await shop.product([4, 4]);
    await shop.hold({ [sku]: 3 }, { holdSeconds: 60 });
    const paid = await shop.hold({ [sku]: 2 }, { holdSeconds: 60 });
    await shop.pay(paid);
    await shop.query(`update tahan.bins set safety_stock = 2 where sku = $1`, [sku]);
    // 0 and 3 are free, 3 are overdue in the first bin, 2 of safety in each.
    expect(await sellable(sku)).toEqual([1]);
    await shop.shiftClock(2 * minutes);
    const [shown] = await readAvailability(shop.db, [sku]);
    expect([await sellable(sku), shown!.sellable]).toEqual([[2], 2]);
    expect((await shop.claim({ [sku]: 3 })).outcome).toBe('INSUFFICIENT_STOCK');
    expect((await shop.claim({ [sku]: 2 })).outcome).toBe('HELD');
  });

  it('F35: of more than 500 overdue holds it counts 500, and says that there are more', async () => {
    const sku = await shop.product([501]);
    const claims = Array.from({ length: 501 }, () =>
      shop.request({ [sku]: 1 }, { holdSeconds: 60 }),
    );
    await claimBatch(shop.db, await Promise.all(claims));
    const read = async () =>
      (await readCheckouts(shop.db, [wanted('b', { [sku]: 1 })])).products[0];
    expect(await read()).toMatchObject({ sellable: 0, more: false });
    await shop.shiftClock(2 * minutes);
    expect(await read()).toMatchObject({ sellable: 500, more: true });
    // Takes the one that ended first, with seven others that its batch gives back.
    await shop.hold({ [sku]: 1 });
    expect(await read()).toMatchObject({ sellable: 500, more: false });
  });

  it('R08: it knows the holds of these keys, refused ones too, and no others', async () => {
    const sku = await shop.product([1]);
    const held = await shop.hold({ [sku]: 1 });
    const refused = await shop.request({ [sku]: 1 });
    await shop.claim({ [sku]: 1 }, refused);
    const { holds } = await readCheckouts(shop.db, [
      wanted('b', { [sku]: 1 }, held),
      wanted('b', { [sku]: 1 }, refused.holdId),
      wanted('b', { [sku]: 1 }),
    ]);
    expect(holds.map(({ id, status }) => [id, status]).sort()).toEqual(
      [
        [held, 'HELD'],
        [refused.holdId, 'REJECTED'],
      ].sort(),
    );
  });

  it('R10, B17: what a limit counts: held and bought, no overdue unpaid hold, and one that a payment waits for', async () => {
    const sku = await shop.product([20], { perBuyerLimit: 5 });
    const free = await shop.product([20]);
    const bought = async (buyerId: string) =>
      (await readCheckouts(shop.db, [wanted(buyerId, { [sku]: 1, [free]: 1 })])).bought;
    expect(await bought('ann')).toEqual([{ buyerId: 'ann', sku, units: 0 }]);
    await shop.hold({ [sku]: 1 }, { buyerId: 'ann', holdSeconds: 60 });
    const paid = await shop.hold({ [sku]: 2 }, { buyerId: 'ann', holdSeconds: 60 });
    await shop.hold({ [sku]: 5 }, { buyerId: 'bob' });
    expect((await bought('ann')).map(({ units }) => units)).toEqual([3]);
    await shop.pay(paid);
    await shop.shiftClock(2 * minutes);
    expect((await bought('ann')).map(({ units }) => units)).toEqual([2]);
    expect((await shop.claim({ [sku]: 4 }, { buyerId: 'ann' })).outcome).toBe('BUYER_LIMIT');
    expect((await shop.claim({ [sku]: 3 }, { buyerId: 'ann' })).outcome).toBe('HELD');
  });

  it('S11: a buyer whom a rule refuses is named with the same refusal as a claim gets', async () => {
    const sku = await shop.product([20]);
    await putBuyerRules(shop.db, { maxOpenHolds: 1 }, by);
    await shop.hold({ [sku]: 1 }, { buyerId: 'open' });
    const { refused } = await readCheckouts(shop.db, [
      wanted('open', { [sku]: 1 }),
      wanted('new', { [sku]: 1 }),
    ]);
    const claimed = await shop.claim({ [sku]: 1 }, { buyerId: 'open' });
    expect(refused).toEqual([
      { buyerId: 'open', refusal: { outcome: 'BUYER_LIMIT', openHolds: 1, limit: 1 } },
    ]);
    expect(claimed).toMatchObject(refused[0]!.refusal);
    await putBuyerRules(shop.db, { maxOpenHolds: null }, by);
    expect((await readCheckouts(shop.db, [wanted('open', { [sku]: 1 })])).refused).toEqual([]);
  });

  it('R08, S11: whose own hold is what a rule counts is known by his key, also when it was committed during the read', async () => {
    const sku = await shop.product([20]);
    await putBuyerRules(shop.db, { maxOpenHolds: 1 }, by);
    const rival = await other(shop, 'lock table tahan.buyer_rules in access exclusive mode');
    const mine = await shop.request({ [sku]: 1 });
    const read = readCheckouts(shop.db, [wanted(mine.buyerId, { [sku]: 1 }, mine.holdId)]);
    await whenWaiting(shop, 'read_checkouts');
    await rival.client.query(...claimCall(mine));
    await rival.commit();
    const { refused, holds } = await read;
    expect([refused.length, holds.map(({ id }) => id)]).toEqual([1, [mine.holdId]]);
    await putBuyerRules(shop.db, { maxOpenHolds: null }, by);
  });

  it('R33: of who orders a cart it knows the lines and their products', async () => {
    const sku = await shop.product([3]);
    await putCartLine(shop.db, { buyerId: 'cart', sku, quantity: 2 });
    await putCartLine(shop.db, { buyerId: 'other', sku, quantity: 1 });
    const { carts, products } = await readCheckouts(shop.db, [wanted('cart', null)]);
    expect(carts).toEqual([{ buyerId: 'cart', sku, quantity: 2 }]);
    expect(products).toMatchObject([{ sku, sellable: 3, more: false }]);
  });
});
