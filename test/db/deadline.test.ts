import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, statusOf } from './books.js';
import { other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the deadline of a claim', (version) => {
  const shop = sharedShop(version);

  it('F8: when its deadline ends the wait, a claim is CLAIM_TOO_LATE, whatever it waited for; it leaves no row, takes nothing later, and may run again', async () => {
    const sku = await shop.product([2], { perBuyerLimit: 5 });
    const overdue = await shop.hold({ [sku]: 1 }, { holdSeconds: 1 });
    await shop.shiftClock(2_000);
    const request = await shop.request({ [sku]: 2 });
    const before = await everything(shop);
    const rivals = {
      key: () => other(shop, `select pg_advisory_xact_lock(tahan.key_lock($1))`, [request.holdId]),
      buyer: () =>
        other(shop, `select pg_advisory_xact_lock(tahan.buyer_lock($1))`, [request.buyerId]),
      'overdue hold': () =>
        other(shop, `select from tahan.holds where id = $1 for update`, [overdue]),
      bin: () => otherOnBins(shop, sku),
    };
    for (const [waitsFor, rival] of Object.entries(rivals)) {
      const blocker = await rival();
      const claimDeadline = await shop.now(250);
      const started = performance.now();
      const answer = await claim(shop.db, { ...request, claimDeadline });
      expect({ waitsFor, ...answer }).toEqual({ waitsFor, outcome: 'CLAIM_TOO_LATE' });
      // Not the 4 s of the pool's budget.
      expect(performance.now() - started).toBeLessThan(2_000);
      await blocker.rollback();
      expect(await statusOf(shop, request.holdId)).toBeUndefined();
      expect(await everything(shop)).toEqual(before);
    }
    const again = { ...request, claimDeadline: await shop.now(3_500) };
    expect((await claim(shop.db, again)).outcome).toBe('HELD');
  });

  it('F4: a claim that gets its locks after its deadline, although nobody made it wait too long for one, takes nothing', async () => {
    const sku = await shop.product([1]);
    const blocker = await otherOnBins(shop, sku);
    const request = await shop.request({ [sku]: 1 });
    const claiming = claim(shop.db, request);
    await whenWaiting(shop, 'tahan.claim');
    await shop.shiftClock(4_000);
    await blocker.rollback();
    expect(await claiming).toEqual({ outcome: 'CLAIM_TOO_LATE' });
    expect(await counts(shop, sku)).toMatchObject({ available: 1, held: 0 });
  });

  it('A14: the window of a hold counts from when its locks are held: a hold of 1 s that waited longer is born with all of it', async () => {
    const sku = await shop.product([1]);
    const blocker = await otherOnBins(shop, sku);
    const request = await shop.request(
      { [sku]: 1 },
      { holdSeconds: 1, claimDeadline: await shop.now(60_000) },
    );
    const claiming = claim(shop.db, request);
    await whenWaiting(shop, 'tahan.claim');
    await shop.shiftClock(10_000);
    await blocker.rollback();
    const answer = await claiming;
    if (answer.outcome !== 'HELD') throw new Error(answer.outcome);
    expect(answer.remainingMs).toBeGreaterThan(500);
    const hold = await readHold(shop.db, answer.holdId);
    expect(Date.parse(hold!.expiresAt!) - Date.parse(hold!.createdAt)).toBe(1_000);
  });

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
