import { expect, it } from 'vitest';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('those who must not wait', (version) => {
  const shop = sharedShop(version);

  it('A10: claims that fill their pool waiting for one bin keep no expiry, payment or read out', async () => {
    const [stuck, free] = [await shop.product([9]), await shop.product([2])];
    const [overdue, paid] = [
      await shop.hold({ [free]: 1 }, { holdSeconds: 1 }),
      await shop.hold({ [free]: 1 }),
    ];
    await shop.shiftClock(2_000);
    const blocker = await otherOnBins(shop, stuck);
    const waiting = Promise.all(
      Array.from({ length: 6 }, () => shop.claim({ [stuck]: 1 }).catch(() => null)),
    );
    await whenWaiting(shop, 'tahan.claim', 4);
    expect(await expire(shop.db, overdue)).toEqual({ outcome: 'EXPIRED' });
    expect(await confirm(shop.db, paid, await shop.pay(paid))).toMatchObject({
      outcome: 'CONFIRMED',
    });
    expect((await readHold(shop.db, paid))?.status).toBe('CONFIRMED');
    await blocker.rollback();
    await waiting;
  });

  it('A15: rows under our locks may be named by new rows: no foreign-key check waits for a claim, a payment or a changed product', async () => {
    const sku = await shop.product([9, 9]);
    const hold = await shop.hold({ [sku]: 1 });
    const locks = await other(
      shop,
      `select tahan.lock_holds(array[$1::uuid], clock_timestamp() + interval '9 s', null),
         tahan.lock_bins((select array_agg(id order by id) from tahan.bins where sku = $2),
           clock_timestamp() + interval '9 s', null)`,
      [hold, sku],
    );
    const setting = await other(
      shop,
      `select tahan.put_product($1, '{"name": "new"}', 'operator', 'renamed') as answer`,
      [sku],
    );
    expect(setting.answer).toEqual({ outcome: 'CHANGED' });
    const naming = await other(shop, `set local lock_timeout = '1s'`);
    await naming.client.query(`insert into bins (sku, code) values ($1, 'b9')`, [sku]);
    await naming.client.query(
      `insert into allocations select $1, max(id), 1 from bins where sku = $2 and code = 'b2'`,
      [hold, sku],
    );
    await naming.rollback();
    await locks.rollback();
    const claiming = await shop.claim({ [sku]: 1 });
    expect(claiming.outcome).toBe('HELD');
    await setting.rollback();
  });
});
