import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { extend } from '../../db/extend.js';
import { putProduct } from '../../db/product.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, statusOf, tally } from './books.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('extend', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });
  const end = async (hold: string) => Date.parse((await readHold(shop.db, hold))!.expiresAt!);

  it('B15: an extension before the end adds its seconds to the end; after it, or after another buyer has the unit, nothing is renewed', async () => {
    const sku = await shop.product([1]);
    const a = await shop.hold({ [sku]: 1 });
    const before = await end(a);
    await shop.shiftClock(599_000);
    const extended = await extend(shop.db, a, 60, 'one', 'buyer');
    if (extended.outcome !== 'EXTENDED') throw new Error(extended.outcome);
    expect(extended).toMatchObject({ extensions: 1 });
    expect(Date.parse(extended.expiresAt)).toBe(before + 60_000);
    expect(extended.remainingMs).toBeGreaterThan(55_000);
    expect(extended.remainingMs).toBeLessThanOrEqual(61_000);
    await shop.shiftClock(661_000);
    expect(await extend(shop.db, a, 60, 'two', 'buyer')).toEqual({ outcome: 'EXPIRED' });
    const b = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(670_000);
    const expired = { outcome: 'ALREADY', status: 'EXPIRED' };
    expect(await extend(shop.db, a, 60, 'three', 'buyer')).toEqual(expired);
    expect(await confirm(shop.db, b, await shop.pay(b))).toMatchObject({ outcome: 'CONFIRMED' });
    expect(await end(a)).toBe(before + 60_000);
    expect(await counts(shop, sku)).toEqual({ available: 0, held: 0, sold: 1, total: 1 });
  });

  it('B15: a product that was switched off meanwhile leaves its open holds alone: they may be extended', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    await putProduct(shop.db, sku, { active: false }, { actor: 'operator', reason: 'recall' });
    expect((await extend(shop.db, hold, 60, 'x', 'buyer')).outcome).toBe('EXTENDED');
  });

  it('R10: 2 extensions by default, and never past max_hold_seconds from the creation; the largest that is allowed is named', async () => {
    const sku = await shop.product([9], { holdSeconds: 600, maxHoldSeconds: 1000 });
    const hold = await shop.hold({ [sku]: 1 });
    const before = await end(hold);
    const limit = { outcome: 'LIMIT', maxExtensions: 2 };
    expect(await extend(shop.db, hold, 401, 'a', 'buyer')).toEqual({
      ...limit,
      largestSeconds: 400,
    });
    expect((await extend(shop.db, hold, 100, 'b', 'buyer')).outcome).toBe('EXTENDED');
    expect(await extend(shop.db, hold, 301, 'c', 'buyer')).toEqual({
      ...limit,
      largestSeconds: 300,
    });
    expect(await extend(shop.db, hold, 0, 'd', 'buyer')).toMatchObject(limit);
    expect(await extend(shop.db, hold, -60, 'e', 'buyer')).toMatchObject(limit);
    expect((await extend(shop.db, hold, 300, 'f', 'buyer')).outcome).toBe('EXTENDED');
    expect(await extend(shop.db, hold, 1, 'g', 'buyer')).toEqual({ ...limit, largestSeconds: 0 });
    expect(await end(hold)).toBe(before + 400_000);
  });

  it('R10, A15: of several products the smallest cap and the fewest extensions count', async () => {
    const long = await shop.product([9], { maxExtensions: 9, maxHoldSeconds: 900 });
    const strict = await shop.product([9], { maxExtensions: 0 });
    const both = await shop.hold({ [long]: 1, [strict]: 1 });
    expect(await extend(shop.db, both, 1, 'x', 'buyer')).toEqual({
      outcome: 'LIMIT',
      maxExtensions: 0,
      largestSeconds: 0,
    });
    const tight = await shop.product([9], { maxExtensions: 1, maxHoldSeconds: 700 });
    const hold = await shop.hold({ [long]: 1, [tight]: 1 });
    expect(await extend(shop.db, hold, 101, 'x', 'buyer')).toMatchObject({ largestSeconds: 100 });
  });

  it('A7: an extension that is repeated with its request id, also while the first one runs, moves the end once and answers the same; a refused one stays refused', async () => {
    const sku = await shop.product([1], { maxHoldSeconds: 900 });
    const hold = await shop.hold({ [sku]: 1 });
    const before = await end(hold);
    const first = await other(shop, `select tahan.extend($1, 60, 'same', 'buyer')`, [hold]);
    const repeats = atOnce(4, () => extend(shop.db, hold, 60, 'same', 'buyer'));
    await whenWaiting(shop, 'tahan.extend', 4);
    await first.commit();
    const answers = await repeats;
    expect(tally(answers)).toEqual({ EXTENDED: 4 });
    const said = answers.map((answer) => (answer.outcome === 'EXTENDED' ? answer.expiresAt : null));
    expect(new Set(said)).toEqual(new Set([new Date(before + 60_000).toISOString()]));
    expect(await end(hold)).toBe(before + 60_000);
    // B19: the same request id with other seconds is another request, and moves nothing.
    expect(await extend(shop.db, hold, 61, 'same', 'buyer')).toEqual({ outcome: 'KEY_REUSED' });
    expect(await end(hold)).toBe(before + 60_000);
    const refused = await extend(shop.db, hold, 500, 'too much', 'buyer');
    expect(refused).toMatchObject({ outcome: 'LIMIT', largestSeconds: 240 });
    await extend(shop.db, hold, 60, 'another', 'buyer');
    expect(await extend(shop.db, hold, 500, 'too much', 'buyer')).toEqual(refused);
    await cancel(shop.db, hold, 'changed my mind', 'buyer');
    expect(await extend(shop.db, hold, 60, 'same', 'buyer')).toEqual({
      outcome: 'ALREADY',
      status: 'CANCELLED',
    });
    expect(await extend(shop.db, randomUUID(), 60, 'same', 'buyer')).toEqual({
      outcome: 'MISSING',
    });
  });

  it('A1: an extension of a hold that was paid meanwhile keeps its payment', async () => {
    const sku = await shop.product([1]);
    const paid = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(paid);
    expect((await extend(shop.db, paid, 60, 'y', 'buyer')).outcome).toBe('EXTENDED');
    await confirm(shop.db, paid, payment);
    expect(await statusOf(shop, paid)).toBe('CONFIRMED');
  });
});
