import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readHold } from '../../db/readHold.js';
import { restock } from '../../db/restock.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, statusOf, tally } from './books.js';
import { atOnce, claimCall, other, otherOnBins, whenWaiting } from './rivals.js';
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

  it('R03, R04: a claim that finds too few units in its bins, all together, is sold out', async () => {
    const sku = await shop.product([2, 1]);
    expect(await shop.claim({ [sku]: 4 })).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku, requested: 4, available: 3 }],
    });
    await shop.hold({ [sku]: 3 });
    expect(await shop.claim({ [sku]: 1 })).toMatchObject({
      shortfalls: [{ sku, requested: 1, available: 0 }],
    });
  });

  it('R04: in_order fills the bins in id order: 13 units over bins of 10 and 15 are 10 and 3', async () => {
    const sku = await shop.product([10, 15]);
    const hold = await shop.hold({ [sku]: 13 });
    expect((await readHold(shop.db, hold))?.lines[0]?.allocations).toEqual([
      { bin: 'b1', quantity: 10 },
      { bin: 'b2', quantity: 3 },
    ]);
    expect(await bins(shop, sku)).toEqual([
      [0, 10, 0],
      [12, 3, 0],
    ]);
  });

  it('R04: spread takes one bin that covers the line alone, in_order does not look for it', async () => {
    const spread = await shop.product([1, 5, 1], { allocation: 'spread' });
    await shop.hold({ [spread]: 4 });
    expect(await bins(shop, spread)).toEqual([
      [1, 0, 0],
      [1, 4, 0],
      [1, 0, 0],
    ]);
    const inOrder = await shop.product([1, 5, 1]);
    await shop.hold({ [inOrder]: 4 });
    expect((await bins(shop, inOrder)).map(([, held]) => held)).toEqual([1, 3, 0]);
  });

  it('R04: ten buckets of 1 serve ten buyers one each at the same moment, refuse the eleventh, and span for a line of 3', async () => {
    const sku = await shop.product(Array<number>(10).fill(1), { allocation: 'spread' });
    const spanning = await shop.hold({ [sku]: 3 });
    expect((await readHold(shop.db, spanning))?.lines[0]?.allocations).toHaveLength(3);
    await cancel(shop.db, spanning, 'changed my mind', 'buyer');
    const answers = await atOnce(11, () => shop.claim({ [sku]: 1 }));
    expect(tally(answers)).toEqual({ HELD: 10, INSUFFICIENT_STOCK: 1 });
    expect(await bins(shop, sku)).toEqual(Array(10).fill([0, 1, 0]));
  });

  it('R04: spread passes a bucket that somebody has locked, and starts at different ones', async () => {
    const sku = await shop.product([50, 50, 50], { allocation: 'spread' });
    const stuck = await otherOnBins(shop, sku, 'b2');
    for (let i = 0; i < 20; i += 1) await shop.hold({ [sku]: 1 });
    const [first, second, third] = (await bins(shop, sku)).map(([, held]) => held);
    expect(second).toBe(0);
    expect(first).toBeGreaterThan(0);
    expect(third).toBeGreaterThan(0);
    await stuck.rollback();
  });

  it('R22: a claim locks all bins of its products by product and id, earlier ones first, and holds none while it waits for an earlier one', async () => {
    const [a, b] = [await shop.product([1, 1]), await shop.product([1, 1])].sort();
    const watcher = await shop.session();
    const isFree = async (sku: string, code: string) => {
      const lock = 'select from tahan.bins where sku = $1 and code = $2 for no key update nowait';
      return watcher.query(lock, [sku, code]).then(
        () => true,
        () => false,
      );
    };
    const every = [
      [a!, 'b1'],
      [a!, 'b2'],
      [b!, 'b1'],
      [b!, 'b2'],
    ] as const;
    for (const [index, [sku, code]] of every.entries()) {
      const blocker = await otherOnBins(shop, sku, code);
      const waiting = shop.claim({ [b!]: 1, [a!]: 1 });
      await whenWaiting(shop, 'tahan.claim');
      const free = [];
      for (const [otherSku, otherCode] of every) free.push(await isFree(otherSku, otherCode));
      expect(free).toEqual(every.map((_, place) => place > index));
      await blocker.rollback();
      const answer = await waiting;
      expect(answer.outcome).toBe('HELD');
      await cancel(shop.db, (answer as { holdId: string }).holdId, 'next round', 'test');
    }
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

  it('R36: 10 available with 2 of safety stock sell 8, and safety stock above the stock sells 0', async () => {
    const ten = await shop.product([10], { safetyStock: [2] });
    expect(await shop.claim({ [ten]: 9 })).toMatchObject({
      shortfalls: [{ requested: 9, available: 8 }],
    });
    await shop.hold({ [ten]: 8 });
    expect(await shop.claim({ [ten]: 1 })).toMatchObject({ shortfalls: [{ available: 0 }] });
    expect(await counts(shop, ten)).toMatchObject({ available: 2, held: 8 });

    // Bins don't lend one another what is above their own safety stock.
    const scarce = await shop.product([1, 3], { safetyStock: [5, 0] });
    expect(await readAvailability(shop.db, [scarce])).toMatchObject([
      { available: 4, sellable: 3, safetyStock: 5 },
    ]);
    expect(await shop.claim({ [scarce]: 4 })).toMatchObject({ shortfalls: [{ available: 3 }] });
    await shop.hold({ [scarce]: 3 });
    expect(await bins(shop, scarce)).toEqual([
      [1, 0, 0],
      [0, 3, 0],
    ]);
  });

  it('R40: two concurrent checkouts of the last unit give one success and one insufficient stock', async () => {
    const sku = await shop.product([1]);
    const first = await other<{ outcome: string }>(
      shop,
      ...claimCall(await shop.request({ [sku]: 1 })),
    );
    const second = shop.claim({ [sku]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    await first.commit();
    expect(first.answer.outcome).toBe('HELD');
    expect(await second).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku, requested: 1, available: 0 }],
    });
  });

  it('R40: when the first of the two gives up, the second gets the unit', async () => {
    const sku = await shop.product([1]);
    const first = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
    const second = shop.claim({ [sku]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    await first.rollback();
    expect((await second).outcome).toBe('HELD');
  });

  it('B01: of 50 buyers at once one gets the only unit, in every round; 7 units make three buyers of 2', async () => {
    for (let round = 1; round <= 3; round += 1) {
      const sku = await shop.product([1]);
      const answers = await atOnce(50, () => shop.claim({ [sku]: 1 }));
      expect(tally(answers)).toEqual({ HELD: 1, INSUFFICIENT_STOCK: 49 });
      expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 1 });
    }
    const sku = await shop.product([7]);
    const answers = await atOnce(50, () => shop.claim({ [sku]: 2 }));
    expect(tally(answers)).toEqual({ HELD: 3, INSUFFICIENT_STOCK: 47 });
    expect(await counts(shop, sku)).toMatchObject({ available: 1, held: 6 });
  });

  it('B06: what is shown is never a multiple of the truth: bins of 4, 3 and 3 with four holds and twenty ledger rows show 6, refuse 7 and sell 6', async () => {
    const sku = await shop.product([4, 3, 3]);
    for (let i = 0; i < 20; i += 1) {
      const change = { sku, bin: 'b1', reason: 'count', actor: 'operator', reference: null };
      await restock(shop.db, { ...change, requestId: `in-${i}`, quantity: 1 });
    }
    await shop.hold({ [sku]: 20 });
    for (let i = 0; i < 4; i += 1) await shop.hold({ [sku]: 1 });
    const shown = async () => (await readAvailability(shop.db, [sku]))[0];
    expect(await shown()).toMatchObject({ available: 6, sellable: 6, held: 24, total: 30 });
    expect((await shop.claim({ [sku]: 7 })).outcome).toBe('INSUFFICIENT_STOCK');
    await shop.hold({ [sku]: 6 });
    expect(await shown()).toMatchObject({ available: 0, sellable: 0, held: 30, total: 30 });
  });

  it('B14: what all bins have together is sold: 1 and 1 make 2, two products in two bins make one hold, 3 of 2 take nothing', async () => {
    const pair = await shop.product([1, 1]);
    const [a, b] = [await shop.product([1, 0]), await shop.product([0, 1])];
    expect((await shop.claim({ [pair]: 3 })).outcome).toBe('INSUFFICIENT_STOCK');
    expect(await bins(shop, pair)).toEqual(Array(2).fill([1, 0, 0]));
    await shop.hold({ [pair]: 2 });
    expect(await bins(shop, pair)).toEqual(Array(2).fill([0, 1, 0]));
    await shop.hold({ [a]: 1, [b]: 1 });
    expect(await bins(shop, a)).toEqual([
      [0, 1, 0],
      [0, 0, 0],
    ]);
  });
});
