import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, ledger, statusOf } from './books.js';
import { limitRounds } from './limitRounds.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the limit per buyer', (version) => {
  const shop = sharedShop(version, { connections: { claims: 16 }, connectWithinMs: 20_000 });

  it('R10: 0 allows none, null has no limit, 2 allows two of each product to each buyer', async () => {
    const none = await shop.product([9], { perBuyerLimit: 0 });
    expect(await shop.claim({ [none]: 1 })).toMatchObject({ outcome: 'BUYER_LIMIT', limit: 0 });
    const free = await shop.product([9], { perBuyerLimit: null });
    await shop.hold({ [free]: 9 });
    const two = await shop.product([9], { perBuyerLimit: 2 });
    const anna = { buyerId: 'anna' };
    await shop.hold({ [two]: 1, [await shop.product([9], { perBuyerLimit: 1 })]: 1 }, anna);
    await shop.hold({ [two]: 1 }, anna);
    const refused = await shop.claim({ [two]: 1 }, anna);
    expect(refused).toMatchObject({ outcome: 'BUYER_LIMIT', sku: two, limit: 2 });
    await shop.hold({ [two]: 2 }, { buyerId: 'bert' });
    expect(await counts(shop, two)).toMatchObject({ held: 4 });
  });

  it('S11, A12: 64 claims of one buyer at once, with a key each, never pass a limit of 2, nor get fewer, 10 rounds (200 in test/chaos)', async () => {
    const sku = await shop.product([30, 30], { perBuyerLimit: 2, allocation: 'spread' });
    await limitRounds(shop, sku, 10);
    expect(await counts(shop, sku)).toMatchObject({ held: 20 });
  });

  it('B17: what was paid counts for ever, what was cancelled or has expired no longer', async () => {
    const sku = await shop.product([9], { perBuyerLimit: 2 });
    const buyer = { buyerId: 'emil' };
    const paid = await shop.hold({ [sku]: 1 }, buyer);
    await confirm(shop.db, paid, await shop.pay(paid));
    const second = await shop.hold({ [sku]: 1 }, buyer);
    expect((await shop.claim({ [sku]: 1 }, buyer)).outcome).toBe('BUYER_LIMIT');
    await cancel(shop.db, second, 'changed my mind', 'buyer');
    const third = await shop.hold({ [sku]: 1 }, buyer);
    await shop.shiftClock(601_000);
    await expire(shop.db, third);
    await shop.hold({ [sku]: 1 }, buyer);
    expect((await shop.claim({ [sku]: 1 }, buyer)).outcome).toBe('BUYER_LIMIT');
  });

  it('B17, A12: a buyer whose own hold is overdue may claim again although its expiry has not run, and that hold ends', async () => {
    const sku = await shop.product([9], { perBuyerLimit: 1 });
    const buyer = { buyerId: 'fritz' };
    const overdue = await shop.hold({ [sku]: 1 }, buyer);
    await shop.shiftClock(601_000);
    await shop.hold({ [sku]: 1 }, buyer);
    expect(await statusOf(shop, overdue)).toBe('EXPIRED');
    expect(await counts(shop, sku)).toMatchObject({ available: 8, held: 1 });
    expect(await ledger(shop, { hold: overdue })).toEqual([
      'reserve 1 b1',
      'release_reservation 1 b1',
    ]);
  });

  it('A12: a refusal by the limit gives no overdue unit of the buyer away', async () => {
    const sku = await shop.product([9], { perBuyerLimit: 3 });
    const buyer = { buyerId: 'hugo' };
    const overdue = await shop.hold({ [sku]: 2 }, buyer);
    await shop.shiftClock(601_000);
    expect((await shop.claim({ [sku]: 4 }, buyer)).outcome).toBe('BUYER_LIMIT');
    expect(await statusOf(shop, overdue)).toBe('HELD');
    await shop.hold({ [sku]: 3 }, buyer);
    expect(await statusOf(shop, overdue)).toBe('EXPIRED');
  });
});
