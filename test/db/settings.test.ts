import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { putBin } from '../../db/bin.js';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { putProduct } from '../../db/product.js';
import { readProduct } from '../../db/readProduct.js';
import { describeEachPostgres } from '../setup/database.js';
import { tally } from './books.js';
import { atOnce, other } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the settings of products and bins', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  it('R36, A15: safety stock and settings change with a reason, are kept with before and after, and count as no movement', async () => {
    const sku = await shop.product([10]);
    const bin = { sku, code: 'b1', safetyStock: 3 };
    const silent = { actor: 'mia', reason: null };
    const mia = { actor: 'mia', reason: 'peak season' };
    expect(await putBin(shop.db, bin, silent)).toEqual({ outcome: 'REASON_REQUIRED' });
    expect(await putProduct(shop.db, sku, { name: 'Seat' }, silent)).toEqual({
      outcome: 'REASON_REQUIRED',
    });
    expect(await putBin(shop.db, bin, mia)).toEqual({ outcome: 'CHANGED' });
    expect(await putBin(shop.db, bin, silent)).toEqual({ outcome: 'UNCHANGED' });
    expect(await putProduct(shop.db, sku, { name: 'Seat' }, mia)).toEqual({ outcome: 'CHANGED' });
    expect(await putProduct(shop.db, sku, { name: 'Seat' }, silent)).toEqual({
      outcome: 'UNCHANGED',
    });
    const broken = { holdSeconds: 2_000 };
    expect(await putProduct(shop.db, sku, broken, mia)).toMatchObject({
      outcome: 'INVALID',
      field: 'products_hold_seconds_range',
    });
    expect(await readProduct(shop.db, sku)).toMatchObject({
      name: 'Seat',
      holdSeconds: 600,
      bins: [{ code: 'b1', available: 10, safetyStock: 3, sellable: 7, version: 1 }],
    });
    const kept = await shop.query(
      `select what, before ->> 'safetyStock' as safety_before, after ->> 'safetyStock' as safety_after,
         before ->> 'name' as name_before, after ->> 'name' as name_after, actor, reason
       from tahan.setting_changes where what like '%' || $1 || '%' and before is not null order by id`,
      [sku],
    );
    const safety = { safety_before: '0', safety_after: '3', name_before: null, name_after: null };
    const name = { safety_before: null, safety_after: null, name_before: '', name_after: 'Seat' };
    expect(kept).toEqual([
      { what: `bin ${sku} b1`, ...safety, ...mia },
      { what: `product ${sku}`, ...name, ...mia },
    ]);
  });

  it('B21, A15: a changed or deactivated product lets running claims and open holds be: they are claimed, paid, cancelled, extended and expired', async () => {
    const sku = await shop.product([9]);
    const mia = { actor: 'mia', reason: 'recall' };
    const holds = await Promise.all([1, 2, 3].map(() => shop.hold({ [sku]: 1 })));
    const changing = await other(
      shop,
      `select tahan.put_product($1, '{"active": false}', 'mia', 'recall')`,
      [sku],
    );
    const during = await shop.hold({ [sku]: 1 });
    await changing.commit();
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('PRODUCT_INACTIVE');
    const [paid, cancelled, overdue] = holds as [string, string, string];
    expect(await confirm(shop.db, paid, await shop.pay(paid))).toMatchObject({
      outcome: 'CONFIRMED',
    });
    expect((await cancel(shop.db, cancelled, 'x', 'buyer')).outcome).toBe('CANCELLED');
    expect((await extend(shop.db, during, 60, 'x', 'buyer')).outcome).toBe('EXTENDED');
    await shop.shiftClock(601_000);
    expect((await expire(shop.db, overdue)).outcome).toBe('EXPIRED');
    await expect(shop.query('delete from tahan.products where sku = $1', [sku])).rejects.toThrow(
      'append-only',
    );
    expect(await putProduct(shop.db, sku, { active: true }, mia)).toEqual({ outcome: 'CHANGED' });
    await shop.hold({ [sku]: 1 });
  });

  it('A15: two who create the same product, or the same bin, at once make one of it', async () => {
    const mia = { actor: 'mia', reason: null };
    const sku = `twice-${randomUUID().slice(0, 8)}`;
    const products = await atOnce(5, () => putProduct(shop.db, sku, { name: 'x' }, mia));
    expect(tally(products)).toEqual({ CREATED: 1, UNCHANGED: 4 });
    const made = await atOnce(5, () => putBin(shop.db, { sku, code: 'b' }, mia));
    expect(tally(made)).toEqual({ CREATED: 1, UNCHANGED: 4 });
    expect(await putBin(shop.db, { sku: 'nothing', code: 'b' }, mia)).toEqual({
      outcome: 'NOT_FOUND',
      what: 'product',
    });
  });
});
