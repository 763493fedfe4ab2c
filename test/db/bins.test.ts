import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { conflicts } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readHold } from '../../db/readHold.js';
import { restock } from '../../db/restock.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, ledger, spreadOrder, tally } from './books.js';
import { atOnce, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the bins of a product', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8 }, connectWithinMs: 20_000 });

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

  it('R04, B14: in_order fills the bins in id order: 13 units over bins of 10 and 15 are 10 and 3, and exactly those go back, by a cancel and by the end', async () => {
    for (const how of ['cancel', 'expire'] as const) {
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
      // What the bins are filled with meanwhile changes nothing about where the units go back to.
      const change = { sku, bin: 'b1', reason: 'count', actor: 'operator', reference: null };
      await restock(shop.db, { ...change, requestId: randomUUID(), quantity: 1 });
      if (how === 'cancel') await cancel(shop.db, hold, 'changed my mind', 'buyer');
      else await shop.stopClock(hold, 0);
      if (how === 'expire')
        expect(await expire(shop.db, hold)).toMatchObject({ outcome: 'EXPIRED' });
      expect(await bins(shop, sku)).toEqual([
        [11, 0, 0],
        [15, 0, 0],
      ]);
      expect((await ledger(shop, { hold })).sort()).toEqual([
        'release_reservation 10 b1',
        'release_reservation 3 b2',
        'reserve 10 b1',
        'reserve 3 b2',
      ]);
    }
  });

  it('R04: spread takes one bin that covers the line alone, also in a hold of several products; in_order does not look for it', async () => {
    const two = await shop.product([9]);
    for (const more of [{}, { [two]: 1 }]) {
      const spread = await shop.product([1, 5, 1], { allocation: 'spread' });
      await shop.hold({ [spread]: 4, ...more });
      expect((await bins(shop, spread)).map(([, held]) => held)).toEqual([0, 4, 0]);
      const inOrder = await shop.product([1, 5, 1]);
      await shop.hold({ [inOrder]: 4, ...more });
      expect((await bins(shop, inOrder)).map(([, held]) => held)).toEqual([1, 3, 0]);
    }
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

  it('R04: 50 units in ten buckets of 5: in a race of 40 orders, paid or cancelled, each bucket keeps its 5 and sells none twice', async () => {
    const sku = await shop.product(Array<number>(10).fill(5), { allocation: 'spread' });
    const before = conflicts.repeated;
    const claimDeadline = await shop.now(60_000);
    const answers = await atOnce(40, async (index) => {
      const lines = { [sku]: 1 + (index % 3) };
      const answer = await shop.claim(lines, { claimDeadline });
      if (answer.outcome !== 'HELD') return answer;
      if (index % 2) return confirm(shop.db, answer.holdId, await shop.pay(answer.holdId));
      return cancel(shop.db, answer.holdId, 'changed my mind', 'buyer');
    });
    const { CONFIRMED, CANCELLED } = tally(answers);
    expect(CONFIRMED).toBeGreaterThan(0);
    expect(CANCELLED).toBeGreaterThan(0);
    for (const [available, held, sold] of await bins(shop, sku)) {
      expect([available + sold, held]).toEqual([5, 0]);
    }
    // Each bucket's chain in the ledger is audited after the test.
    expect(conflicts.repeated - before).toBe(0);
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

  it.each([
    ['ten buckets of 1', Array<number>(10).fill(1), 'spread'],
    ['one bin', [10], 'in_order'],
  ] as const)(
    'R04, R03: of 40 buyers at once 10 hold one of 10 units and 30 are refused alike; what comes back is held again at once, beside others who ask for 11, and nobody is refused wrongly (%s)',
    async (_, stock, allocation) => {
      const sku = await shop.product([...stock], { allocation });
      const claimDeadline = await shop.now(60_000);
      const held: string[] = [];
      const claimAtOnce = async (count: number) => {
        const answers = await atOnce(count, () => shop.claim({ [sku]: 1 }, { claimDeadline }));
        for (const answer of answers) if (answer.outcome === 'HELD') held.push(answer.holdId);
        return answers;
      };
      for (let sale = 0; sale < 2; sale += 1) {
        const answers = await claimAtOnce(40);
        expect(tally(answers)).toEqual({ HELD: 10, INSUFFICIENT_STOCK: 30 });
        for (const answer of answers)
          if (answer.outcome !== 'HELD')
            expect(answer).toMatchObject({ shortfalls: [{ sku, requested: 1, available: 0 }] });
        for (const back of [1, 5, 7, 10]) {
          await Promise.all(
            held.splice(0, back).map((id) => cancel(shop.db, id, 'changed my mind', 'buyer')),
          );
          // Who asks for more than there is locks every bin and takes nothing.
          const [answers, greedy] = await Promise.all([
            claimAtOnce(back),
            atOnce(8, () => shop.claim({ [sku]: 11 }, { claimDeadline })),
          ]);
          expect(tally(answers)).toEqual({ HELD: back });
          expect(tally(greedy)).toEqual({ INSUFFICIENT_STOCK: 8 });
        }
        await Promise.all(held.splice(0).map((id) => cancel(shop.db, id, 'no more', 'buyer')));
      }
      expect(await counts(shop, sku)).toEqual({ available: 10, held: 0, sold: 0, total: 10 });
    },
  );

  it('R04: known: while the other buckets are locked for a moment, spread waits for the one that is stuck, if it began with that, until its deadline; it takes nothing, and is not told that it is sold out', async () => {
    const sku = await shop.product([5, 5], { allocation: 'spread' });
    const request = await shop.request({ [sku]: 1 }, { claimDeadline: await shop.now(1_000) });
    const [one, other] = (await spreadOrder(shop, sku, request.holdId)) as [string, string];
    const [stuck, brief] = [await otherOnBins(shop, sku, one), await otherOnBins(shop, sku, other)];
    const claiming = claim(shop.db, request);
    await whenWaiting(shop, 'tahan.claim', 1, claiming);
    await brief.rollback();
    expect((await claiming).outcome).toBe('CLAIM_TOO_LATE');
    await stuck.rollback();
    expect(await counts(shop, sku)).toEqual({ available: 10, held: 0, sold: 0, total: 10 });
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('HELD');
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
