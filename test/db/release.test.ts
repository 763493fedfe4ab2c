import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { putProduct } from '../../db/product.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readHold } from '../../db/readHold.js';
import { release } from '../../db/release.js';
import type { ReleaseOutcome } from '../../db/release.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, statusOf, tally } from './books.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('release', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 10 } });

  const give = (
    hold: string,
    lines: Record<string, number>,
    requestId: string = randomUUID(),
  ): Promise<ReleaseOutcome> =>
    release(shop.db, hold, {
      lines: Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
      reason: 'one is enough',
      actor: 'shop:web',
      requestId,
    });
  const linesOf = async (hold: string) =>
    (await readHold(shop.db, hold))!.lines.map(({ sku, quantity, released }) => [
      sku,
      quantity,
      released,
    ]);
  const total = async (hold: string) => (await readHold(shop.db, hold))!.order!.totalMinor;

  it('B13: of 10 and 10, 3 of p and 4 of q, then 2 of p, then all of q, then the rest: held 7/6, 5/6, 5/0, 0/0; 11 are refused; all comes back once', async () => {
    const price = { priceMinor: 500, currency: 'EUR' };
    const [p, q] = [await shop.product([100], price), await shop.product([100], price)].sort();
    const hold = await shop.hold({ [p!]: 10, [q!]: 10 }, { order: true });
    const before = await readHold(shop.db, hold);
    const held = async () => [(await counts(shop, p!)).held, (await counts(shop, q!)).held];
    const untouched = await everything(shop);
    expect(await give(hold, { [p!]: 11 })).toEqual({
      outcome: 'INVALID_QUANTITY',
      lines: [{ sku: p, requested: 11, held: 10 }],
    });
    expect(await everything(shop)).toEqual(untouched);

    expect(await give(hold, { [p!]: 3, [q!]: 4 })).toEqual({
      outcome: 'RELEASED',
      status: 'HELD',
      left: [
        { sku: p, quantity: 7 },
        { sku: q, quantity: 6 },
      ],
    });
    expect(await held()).toEqual([7, 6]);
    expect(await total(hold)).toBe(13 * 500);
    expect(await give(hold, { [p!]: 2 })).toMatchObject({ status: 'HELD' });
    expect(await held()).toEqual([5, 6]);
    expect(await give(hold, { [q!]: 6 })).toEqual({
      outcome: 'RELEASED',
      status: 'HELD',
      left: [{ sku: p, quantity: 5 }],
    });
    expect(await held()).toEqual([5, 0]);
    expect(await total(hold)).toBe(5 * 500);
    expect(await linesOf(hold)).toEqual([
      [p, 5, 5],
      [q, 0, 10],
    ]);
    expect((await readHold(shop.db, hold))!.expiresAt).toBe(before!.expiresAt);
    expect(await give(hold, { [q!]: 1 })).toMatchObject({
      outcome: 'INVALID_QUANTITY',
      lines: [{ sku: q, requested: 1, held: 0 }],
    });
    expect(await give(hold, { [p!]: 5 })).toEqual({
      outcome: 'RELEASED',
      status: 'CANCELLED',
      left: [],
    });
    for (const sku of [p!, q!]) {
      expect(await counts(shop, sku)).toEqual({ available: 100, held: 0, sold: 0, total: 100 });
      const back = (await ledger(shop, { sku })).filter((line) => line.startsWith('release'));
      expect(back.reduce((sum, line) => sum + Number(line.split(' ')[1]), 0)).toBe(10);
    }
    expect(await readHold(shop.db, hold)).toMatchObject({
      status: 'CANCELLED',
      reason: 'one is enough',
    });
  });

  it('B13: after a release a cancel gives back what is left and not what was asked, and so does the expiry', async () => {
    for (const end of [
      (hold: string) => cancel(shop.db, hold, 'no more', 'buyer'),
      async (hold: string) => {
        await shop.shiftClock(601_000);
        return expire(shop.db, hold);
      },
    ]) {
      const sku = await shop.product([10]);
      const [hold, neighbour] = [await shop.hold({ [sku]: 5 }), await shop.hold({ [sku]: 5 })];
      await give(hold, { [sku]: 3 });
      await end(hold);
      await shop.shiftClock(0);
      expect(await counts(shop, sku)).toMatchObject({ available: 5, held: 5 });
      expect(await statusOf(shop, neighbour)).toBe('HELD');
    }
  });

  it('B13: units go back to exactly the bins they came from, the last allocated first', async () => {
    const sku = await shop.product([2, 2, 2]);
    const hold = await shop.hold({ [sku]: 5 });
    expect(await bins(shop, sku)).toEqual([
      [0, 2, 0],
      [0, 2, 0],
      [1, 1, 0],
    ]);
    await give(hold, { [sku]: 2 });
    expect(await bins(shop, sku)).toEqual([
      [0, 2, 0],
      [1, 1, 0],
      [2, 0, 0],
    ]);
    expect((await readHold(shop.db, hold))!.lines[0]!.allocations).toEqual([
      { bin: 'b1', quantity: 2 },
      { bin: 'b2', quantity: 1 },
    ]);
    await give(hold, { [sku]: 2 });
    expect(await bins(shop, sku)).toEqual([
      [1, 1, 0],
      [2, 0, 0],
      [2, 0, 0],
    ]);
    expect(await ledger(shop, { hold })).toEqual([
      ...['reserve 2 b1', 'reserve 2 b2', 'reserve 1 b3'],
      ...['release_reservation 1 b2', 'release_reservation 1 b3'],
      ...['release_reservation 1 b1', 'release_reservation 1 b2'],
    ]);
    const [movement] = await shop.query(
      `select reason, actor from tahan.movements where hold_id = $1 and type = 'release_reservation' limit 1`,
      [hold],
    );
    expect(movement).toEqual({ reason: 'one is enough', actor: 'shop:web' });
  });

  it('B18: a product that is not in the hold, nothing, and less than one unit are refused and change nothing', async () => {
    const [sku, foreign] = [await shop.product([9]), await shop.product([9])];
    const hold = await shop.hold({ [sku]: 3 });
    const before = await everything(shop);
    expect(await give(hold, { [sku]: 1, [foreign]: 1 })).toMatchObject({
      lines: [{ sku: foreign, requested: 1, held: 0 }],
    });
    expect(await give(hold, { [sku]: 2_147_483_647 })).toMatchObject({
      outcome: 'INVALID_QUANTITY',
    });
    const by = { reason: 'x', actor: 'x', requestId: 'x' };
    const twice = [
      { sku, quantity: 2 },
      { sku, quantity: 2 },
    ];
    expect(await release(shop.db, hold, { ...by, lines: twice })).toMatchObject({
      lines: [{ sku, requested: 4, held: 3 }],
    });
    for (const quantities of [[0], [-5], [-5, 6], [1.5], [null], [Number.NaN], []]) {
      const lines = quantities.map((quantity) => ({ sku, quantity: quantity as number }));
      await expect(release(shop.db, hold, { ...by, lines })).rejects.toThrow();
    }
    expect(await release(shop.db, hold, { ...by, lines: twice, reason: ' ' })).toEqual({
      outcome: 'REASON_REQUIRED',
    });
    expect(await everything(shop)).toEqual(before);
  });

  it('A7, B19: a release that is repeated with its request id, also while the first one runs and after the end of the hold, gives back once; the id stands for nothing else', async () => {
    const sku = await shop.product([10]);
    const hold = await shop.hold({ [sku]: 5 });
    const first = await other(
      shop,
      `select tahan.release($1, $2, 'one is enough', 'shop:web', 'same')`,
      [hold, JSON.stringify([{ sku, quantity: 2 }])],
    );
    const repeats = atOnce(4, () => give(hold, { [sku]: 2 }, 'same'));
    await whenWaiting(shop, 'tahan.release', 4);
    await first.commit();
    const answers = await repeats;
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(answers[0]).toMatchObject({ outcome: 'RELEASED', left: [{ sku, quantity: 3 }] });
    expect(await counts(shop, sku)).toMatchObject({ available: 7, held: 3 });

    expect(await give(hold, { [sku]: 1 }, 'same')).toEqual({ outcome: 'KEY_REUSED' });
    expect(await extend(shop.db, hold, 60, 'same', 'buyer')).toEqual({ outcome: 'KEY_REUSED' });
    await extend(shop.db, hold, 60, 'longer', 'buyer');
    expect(await give(hold, { [sku]: 1 }, 'longer')).toEqual({ outcome: 'KEY_REUSED' });
    await give(hold, { [sku]: 3 }, 'last');
    expect(await give(hold, { [sku]: 3 }, 'last')).toEqual({
      outcome: 'RELEASED',
      status: 'CANCELLED',
      left: [],
    });
    expect(await give(hold, { [sku]: 2 }, 'same')).toEqual(answers[0]);
    expect(await counts(shop, sku)).toMatchObject({ available: 10, held: 0 });
  });

  it('of a hold that is over, paid, refused or not there nothing is released', async () => {
    const sku = await shop.product([9]);
    const hold = await shop.hold({ [sku]: 2 });
    expect(await give(randomUUID(), { [sku]: 1 })).toEqual({ outcome: 'MISSING' });
    await shop.shiftClock(601_000);
    expect(await give(hold, { [sku]: 1 })).toEqual({ outcome: 'EXPIRED' });
    await expire(shop.db, hold);
    const already = (status: string) => ({ outcome: 'ALREADY', status });
    expect(await give(hold, { [sku]: 1 })).toEqual(already('EXPIRED'));
    const paid = await shop.hold({ [sku]: 2 });
    const payment = await shop.pay(paid);
    expect(await give(paid, { [sku]: 1 })).toMatchObject({
      outcome: 'PAYMENT_PENDING',
      payment: { paymentId: payment.paymentId },
    });
    await confirm(shop.db, paid, payment);
    expect(await give(paid, { [sku]: 1 })).toEqual(already('CONFIRMED'));
    const refused = await shop.request({ [sku]: 100 });
    await claim(shop.db, refused);
    expect(await give(refused.holdId, { [sku]: 1 })).toEqual(already('REJECTED'));
  });

  it('R33, F23: an order is paid at what is left: the old total is a MISMATCH, the new one confirms, and only what is left is sold', async () => {
    const sku = await shop.product([10], { priceMinor: 500, currency: 'EUR' });
    const hold = await shop.hold({ [sku]: 4 }, { order: true });
    await give(hold, { [sku]: 1 });
    expect(await shop.pay(hold, { amountMinor: 2000 })).toMatchObject({
      settlementReason: 'MISMATCH',
    });
    const right = await shop.pay(hold, { amountMinor: 1500 });
    expect(await confirm(shop.db, hold, right)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(await counts(shop, sku)).toEqual({ available: 7, held: 0, sold: 3, total: 10 });
    expect(await linesOf(hold)).toEqual([[sku, 3, 1]]);
  });

  it('B17: a released unit gives the allowance back', async () => {
    const sku = await shop.product([10], { perBuyerLimit: 2 });
    const buyerId = randomUUID();
    const hold = await shop.hold({ [sku]: 2 }, { buyerId });
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('BUYER_LIMIT');
    await give(hold, { [sku]: 1 });
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('HELD');
    expect((await shop.claim({ [sku]: 1 }, { buyerId })).outcome).toBe('BUYER_LIMIT');
  });

  it('B13: a line of which nothing is left counts nowhere: not as overdue, not for the terms of an extension, not when a late payment claims again', async () => {
    const keep = await shop.product([5], { latePayment: 'accept_if_available' });
    const gone = await shop.product([5], {
      latePayment: 'accept_if_available',
      maxExtensions: 0,
      perBuyerLimit: 5,
    });
    const hold = await shop.hold({ [keep]: 2, [gone]: 2 });
    expect(await extend(shop.db, hold, 10, 'a', 'buyer')).toMatchObject({ outcome: 'LIMIT' });
    await give(hold, { [gone]: 2 });
    expect(await extend(shop.db, hold, 10, 'b', 'buyer')).toMatchObject({ outcome: 'EXTENDED' });
    const [available] = await readAvailability(shop.db, [gone]);
    expect(available).toMatchObject({ available: 5, held: 0, nextReleaseAt: null });
    // Neither stock nor allowance of what is gone is asked for.
    await putProduct(
      shop.db,
      gone,
      { perBuyerLimit: 0 },
      { actor: 'operator', reason: 'sold out elsewhere' },
    );
    await shop.shiftClock(611_000);
    expect(await expire(shop.db, hold)).toEqual({ outcome: 'EXPIRED' });
    const late = await shop.pay(hold);
    expect(await confirm(shop.db, hold, late)).toEqual({ outcome: 'CONFIRMED', late: true });
    expect(await counts(shop, keep)).toMatchObject({ available: 3, sold: 2 });
    expect(await counts(shop, gone)).toMatchObject({ available: 5, sold: 0 });
  });

  it('R07: an overdue hold is given back by the next claim with what is left of it', async () => {
    const [p, q] = [await shop.product([4]), await shop.product([4])];
    const hold = await shop.hold({ [p]: 4, [q]: 4 });
    await give(hold, { [p]: 1, [q]: 4 });
    await shop.shiftClock(601_000);
    const claimDeadline = await shop.now(3500);
    await shop.hold({ [p]: 4 }, { claimDeadline });
    expect(await statusOf(shop, hold)).toBe('EXPIRED');
    expect(await counts(shop, q)).toMatchObject({ available: 4, held: 0 });
  });

  const rivals: Record<string, (hold: string, sku: string) => Promise<{ outcome: string }>> = {
    payment: async (hold) => {
      const paid = await shop.pay(hold);
      return confirm(shop.db, hold, paid);
    },
    expiry: (hold) => expire(shop.db, hold),
    cancel: (hold) => cancel(shop.db, hold, 'no more', 'buyer'),
    'second release': (hold, sku) => give(hold, { [sku]: 3 }),
    'claim of the rest': (_hold, sku) => shop.claim({ [sku]: 2 }),
  };
  it.each(Object.keys(rivals))(
    'B13: 50 releases of 3 of 4 units race a %s: never more is given back than was held, and the books agree',
    async (name) => {
      const sku = await shop.product([300, 300]);
      const holdSeconds = name === 'expiry' ? 1 : 600;
      const held = await atOnce(50, () => shop.hold({ [sku]: 4 }, { holdSeconds }));
      const ends = await Promise.all(
        held.map(async (hold, index) => {
          if (name === 'expiry') {
            const { remainingMs } = (await readHold(shop.db, hold))!;
            await new Promise((due) => setTimeout(due, remainingMs - 10 + (index % 20)));
          }
          const [answer] = await Promise.all([give(hold, { [sku]: 3 }), rivals[name]!(hold, sku)]);
          if (name === 'expiry') while ((await expire(shop.db, hold)).outcome === 'NOT_DUE');
          return answer;
        }),
      );
      const named = tally(ends);
      expect(Object.keys(named)).toEqual(
        expect.arrayContaining(['RELEASED'].filter(() => name !== 'expiry')),
      );
      for (const hold of held) {
        const { lines, status } = (await readHold(shop.db, hold))!;
        expect(lines[0]!.quantity + lines[0]!.released).toBe(4);
        if (name === 'second release') expect([status, lines[0]!.released]).toEqual(['HELD', 3]);
      }
    },
  );
});
