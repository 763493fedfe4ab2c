import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, ledger, statusOf, tally } from './books.js';
import { atOnce, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

const minutes = 60_000;
describeEachPostgres('the end of a hold', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 8 } });

  it('R06: expiry gives back once: run twice, and from ten connections at once', async () => {
    const sku = await shop.product([10, 15]);
    const hold = await shop.hold({ [sku]: 13 });
    await shop.shiftClock(11 * minutes);
    const answers = await atOnce(10, () => expire(shop.db, hold));
    expect(tally(answers)).toEqual({ EXPIRED: 1, ALREADY: 9 });
    expect(await expire(shop.db, hold)).toEqual({ outcome: 'ALREADY', status: 'EXPIRED' });
    expect(await bins(shop, sku)).toEqual([
      [10, 0, 0],
      [15, 0, 0],
    ]);
    expect(await ledger(shop, { hold })).toEqual([
      'reserve 10 b1',
      'reserve 3 b2',
      'release_reservation 10 b1',
      'release_reservation 3 b2',
    ]);
  });

  it('R06: the second of two connections waits for the first and then finds the hold EXPIRED; if the first gives up, it expires it', async () => {
    for (const end of ['commit', 'rollback'] as const) {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(11 * minutes);
      const first = await other(shop, 'select tahan.expire($1) as answer', [hold]);
      const second = expire(shop.db, hold);
      await whenWaiting(shop, 'tahan.expire');
      await first[end]();
      expect(first.answer).toEqual({ outcome: 'EXPIRED' });
      expect((await second).outcome).toBe(end === 'commit' ? 'ALREADY' : 'EXPIRED');
      expect(await counts(shop, sku)).toMatchObject({ available: 1, held: 0 });
      await shop.shiftClock(0);
    }
  });

  it('R06, F12: expiry before the end gives back nothing and says how long to wait, never 0; an unknown hold is MISSING', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const early = await expire(shop.db, hold);
    if (early.outcome !== 'NOT_DUE') throw new Error(early.outcome);
    expect(early.remainingMs).toBeGreaterThan(590_000);
    expect(early.remainingMs).toBeLessThanOrEqual(600_000);
    expect(await shop.query(`select tahan.ms_until(now(), now()) as ms`)).toEqual([{ ms: 1 }]);
    expect(await expire(shop.db, randomUUID())).toEqual({ outcome: 'MISSING' });
    expect(await counts(shop, sku)).toMatchObject({ held: 1 });
  });

  it('R06, A1: an expiry that waited for an extension decides on what it finds after the wait', async () => {
    const sku = await shop.product([1]);
    const extended = await shop.hold({ [sku]: 1 });
    const longer = await other(shop, `select tahan.extend($1, 300, 'x', 'buyer') as answer`, [
      extended,
    ]);
    await shop.shiftClock(11 * minutes);
    const tooEarly = expire(shop.db, extended);
    await whenWaiting(shop, 'tahan.expire');
    await longer.commit();
    expect(await tooEarly).toMatchObject({ outcome: 'NOT_DUE' });
  });

  it('F15: a clock that steps back while an expiry, or a claim that takes a hold back, waits for a bin undoes nothing', async () => {
    for (const call of ['expire', 'claim'] as const) {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(11 * minutes);
      const blocker = await otherOnBins(shop, sku);
      const running = call === 'expire' ? expire(shop.db, hold) : shop.claim({ [sku]: 1 });
      await whenWaiting(shop, `tahan.${call}`);
      await shop.shiftClock(0);
      await blocker.rollback();
      expect((await running).outcome).toBe(call === 'expire' ? 'EXPIRED' : 'HELD');
      expect(await statusOf(shop, hold)).toBe('EXPIRED');
      const row = await readHold(shop.db, hold);
      expect(Date.parse(row!.closedAt!)).toBeGreaterThanOrEqual(Date.parse(row!.expiresAt!));
    }
  });

  it('R07: a claim takes back overdue units from exactly the bins they are in, and ends that hold as EXPIRED', async () => {
    const sku = await shop.product([10, 15, 2]);
    const overdue = await shop.hold({ [sku]: 13 });
    await shop.hold({ [sku]: 14 }, { holdSeconds: 1800 });
    await shop.shiftClock(11 * minutes);
    const hold = await shop.hold({ [sku]: 1 });
    expect((await ledger(shop, { hold: overdue })).slice(2)).toEqual([
      'release_reservation 10 b1',
      'release_reservation 3 b2',
    ]);
    expect(await readHold(shop.db, overdue)).toMatchObject({
      status: 'EXPIRED',
      reason: 'payment window over',
    });
    expect((await readHold(shop.db, hold))?.lines[0]?.allocations).toEqual([
      { bin: 'b1', quantity: 1 },
    ]);
    expect(await bins(shop, sku)).toEqual([
      [9, 1, 0],
      [3, 12, 0],
      [0, 2, 0],
    ]);
  });

  it('R07: an overdue hold gives back its units of all its products to whoever claims one of them', async () => {
    for (const wanted of [0, 1, 2]) {
      const skus = [await shop.product([1]), await shop.product([1, 1]), await shop.product([1])];
      const overdue = await shop.hold({ [skus[0]!]: 1, [skus[1]!]: 2, [skus[2]!]: 1 });
      await shop.shiftClock(11 * minutes);
      await shop.hold({ [skus[wanted]!]: 1 });
      expect(await statusOf(shop, overdue)).toBe('EXPIRED');
      for (const [index, sku] of skus.entries()) {
        expect(await counts(shop, sku)).toMatchObject({ held: index === wanted ? 1 : 0 });
      }
      await shop.shiftClock(0);
    }
  });

  it('R07, R05: an overdue hold that was paid in time is neither taken back nor shown as available', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold);
    await shop.shiftClock(11 * minutes);
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('INSUFFICIENT_STOCK');
    const [shown] = await readAvailability(shop.db, [sku]);
    expect(shown).toMatchObject({ available: 0, sellable: 0, held: 1 });
    expect(await confirm(shop.db, hold, payment)).toEqual({ outcome: 'CONFIRMED', late: false });
  });

  it('R07, R12: overdue units are shown as available, never as held too; counts of all bins add up, and the next end is named', async () => {
    const sku = await shop.product([4, 6], { safetyStock: [1, 0] });
    const overdue = await shop.hold({ [sku]: 5 });
    const open = await shop.hold({ [sku]: 2 }, { holdSeconds: 1800 });
    const shown = async () => (await readAvailability(shop.db, [sku]))[0]!;
    const [first, second] = [await readHold(shop.db, overdue), await readHold(shop.db, open)];
    expect(await shown()).toMatchObject({ available: 3, sellable: 2, held: 7, sold: 0, total: 10 });
    expect((await shown()).nextReleaseAt).toBe(first!.expiresAt);
    await shop.shiftClock(11 * minutes);
    expect(await shown()).toMatchObject({ available: 8, sellable: 7, held: 2, sold: 0, total: 10 });
    expect((await shown()).nextReleaseAt).toBe(second!.expiresAt);
    expect(await shop.claim({ [sku]: 8 })).toMatchObject({ shortfalls: [{ available: 7 }] });
    expect(await statusOf(shop, overdue)).toBe('HELD');
    await shop.hold({ [sku]: 7 });
    expect(await shown()).toMatchObject({ available: 1, sellable: 0, held: 9, total: 10 });
  });

  it('R12: what was shown may be old; the claim decides on what is there', async () => {
    const sku = await shop.product([1]);
    expect((await readAvailability(shop.db, [sku]))[0]).toMatchObject({ sellable: 1 });
    await shop.hold({ [sku]: 1 });
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('INSUFFICIENT_STOCK');
  });

  it('R07: a claim of 50 gets its units out of 300 overdue holds of 1, and no unit is lost', async () => {
    const sku = await shop.product([100, 100, 100]);
    for (let i = 0; i < 30; i += 1) await atOnce(10, () => shop.hold({ [sku]: 1 }));
    expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 300 });
    await shop.shiftClock(11 * minutes);
    await shop.hold({ [sku]: 50 });
    await Promise.all([
      shop.hold({ [sku]: 50 }),
      shop.hold({ [sku]: 50 }),
      shop.hold({ [sku]: 50 }),
    ]);
    expect((await readAvailability(shop.db, [sku]))[0]).toMatchObject({
      available: 100,
      held: 200,
    });
    expect((await shop.claim({ [sku]: 101 })).outcome).toBe('INSUFFICIENT_STOCK');
    await shop.hold({ [sku]: 100 });
    expect(await counts(shop, sku)).toEqual({ available: 0, held: 300, sold: 0, total: 300 });
  });

  it('A9: a claim leaves the overdue holds of other products alone', async () => {
    const [mine, foreign] = [await shop.product([1]), await shop.product([20])];
    const theirs = await atOnce(20, () => shop.hold({ [foreign]: 1 }));
    const own = await shop.hold({ [mine]: 1 });
    await shop.shiftClock(11 * minutes);
    await shop.hold({ [mine]: 1 });
    expect(await statusOf(shop, own)).toBe('EXPIRED');
    for (const hold of theirs) expect(await statusOf(shop, hold)).toBe('HELD');
  });
});
