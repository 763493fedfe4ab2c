import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import { putProduct } from '../../db/product.js';
import { readHold, readOrder } from '../../db/readHold.js';
import { readProduct } from '../../db/readProduct.js';
import { describeEachPostgres } from '../setup/database.js';
import { statusOf } from './books.js';
import { sharedShop } from './shop.js';

describeEachPostgres('an order', (version) => {
  const shop = sharedShop(version);
  const operator = { actor: 'operator', reason: 'test' };

  it('R33: an order keeps its number, its total and its prices, whatever the product costs later', async () => {
    const [a, b] = [
      await shop.product([9], { priceMinor: 1250, currency: 'EUR' }),
      await shop.product([9], { priceMinor: 99, currency: 'EUR' }),
    ];
    const hold = await shop.hold({ [a]: 2, [b]: 3 }, { order: true });
    await putProduct(shop.db, a, { priceMinor: 9999 }, operator);
    const shown = await readHold(shop.db, hold);
    expect(shown?.order).toMatchObject({
      currency: 'EUR',
      totalMinor: 2797,
      status: 'pending_payment',
    });
    expect(shown?.order?.orderNumber).toMatch(/^([0-9A-HJKMNP-TV-Z]{4}-){2}[0-9A-HJKMNP-TV-Z]{4}$/);
    const prices = Object.fromEntries(shown!.lines.map((line) => [line.sku, line.unitPriceMinor]));
    expect(prices).toEqual({ [a]: 1250, [b]: 99 });
    expect((await readOrder(shop.db, shown!.order!.orderNumber))?.id).toBe(hold);
    expect((await readProduct(shop.db, a))?.priceMinor).toBe(9999);
    const plain = await readHold(shop.db, await shop.hold({ [a]: 1 }));
    expect(plain?.order).toBeNull();
  });

  it('R33: an order in two currencies, or of a priced and an unpriced product, is MIXED_CURRENCIES; a plain hold of both is not', async () => {
    const euro = await shop.product([9], { priceMinor: 100, currency: 'EUR' });
    const dollar = await shop.product([9], { priceMinor: 100, currency: 'USD' });
    const free = await shop.product([9]);
    const order = { order: true };
    const mixed = await shop.request({ [euro]: 1, [dollar]: 1 }, order);
    expect(await claim(shop.db, mixed)).toMatchObject({
      outcome: 'MIXED_CURRENCIES',
      currencies: ['EUR', 'USD'],
    });
    expect(await statusOf(shop, mixed.holdId)).toBe('REJECTED');
    expect((await shop.claim({ [euro]: 1, [free]: 1 }, order)).outcome).toBe('MIXED_CURRENCIES');
    await shop.hold({ [euro]: 1, [dollar]: 1, [free]: 1 });
    const unpriced = await readHold(shop.db, await shop.hold({ [free]: 1 }, order));
    expect(unpriced?.order).toMatchObject({ currency: null, totalMinor: null });
  });

  it('R10, A15: a hold of several products has the smallest hold time, cap and extensions, and the strictest late policy', async () => {
    const long = await shop.product([9], { holdSeconds: 900, latePayment: 'accept_if_available' });
    const short = await shop.product([9], {
      holdSeconds: 60,
      latePayment: 'review',
      maxHoldSeconds: 120,
    });
    const hold = await readHold(shop.db, await shop.hold({ [long]: 1, [short]: 1 }));
    expect(hold?.expiresInSeconds).toBe(60);
    expect(
      await shop.query('select late_payment from tahan.holds where id = $1', [hold?.id]),
    ).toEqual([{ late_payment: 'review' }]);
    expect(await shop.claim({ [long]: 1, [short]: 1 }, { holdSeconds: 121 })).toMatchObject({
      outcome: 'HOLD_TOO_LONG',
      maxHoldSeconds: 120,
    });
  });
});
