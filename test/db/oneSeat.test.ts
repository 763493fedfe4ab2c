import { expect, it } from 'vitest';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, ledger, statusOf } from './books.js';
import { claimCall, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the worked example: one seat', (version) => {
  const shop = sharedShop(version);

  it('R15: A holds the only seat for 5 minutes; B is refused at 0:02 and gets it at 5:02 while the expiry of A has not run; A pays at 5:03 and is refused and refunded', async () => {
    const { seat, a } = await soldOutAtTwoSeconds();
    await shop.shiftClock(302_000);
    expect(await statusOf(shop, a)).toBe('HELD');
    const b = await shop.hold({ [seat]: 1 });
    await paysTooLate(seat, a, b);
  });

  it('R15: the same with the expiry of A called by a second connection at the same moment, whoever of the two is first', async () => {
    for (let round = 1; round <= 5; round += 1) {
      const { seat, a } = await soldOutAtTwoSeconds();
      await shop.shiftClock(302_000);
      const [b, expiry] = await Promise.all([shop.hold({ [seat]: 1 }), expire(shop.db, a)]);
      expect(['EXPIRED', 'ALREADY']).toContain(expiry.outcome);
      await paysTooLate(seat, a, b);
      await shop.shiftClock(0);
    }
    // The two orders, forced: one of them has done its work and not committed when the other comes.
    const first = await soldOutAtTwoSeconds();
    await shop.shiftClock(302_000);
    const expiring = await other(shop, 'select tahan.expire($1) as answer', [first.a]);
    const claiming = shop.hold({ [first.seat]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    await expiring.commit();
    await paysTooLate(first.seat, first.a, await claiming);

    await shop.shiftClock(0);
    const second = await soldOutAtTwoSeconds();
    await shop.shiftClock(302_000);
    const request = await shop.request({ [second.seat]: 1 });
    const claimed = await other(shop, ...claimCall(request));
    const expiry = expire(shop.db, second.a);
    await whenWaiting(shop, 'tahan.expire');
    await claimed.commit();
    expect(await expiry).toEqual({ outcome: 'ALREADY', status: 'EXPIRED' });
    await paysTooLate(second.seat, second.a, request.holdId);
  });

  async function soldOutAtTwoSeconds(): Promise<{ seat: string; a: string }> {
    const seat = await shop.product([1], { holdSeconds: 300 });
    const a = await shop.hold({ [seat]: 1 }, { buyerId: 'A' });
    await shop.shiftClock(2_000);
    expect(await shop.claim({ [seat]: 1 }, { buyerId: 'B' })).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ available: 0 }],
    });
    return { seat, a };
  }

  async function paysTooLate(seat: string, a: string, b: string): Promise<void> {
    await shop.shiftClock(303_000);
    const payment = await shop.pay(a);
    expect(await confirm(shop.db, a, payment)).toMatchObject({
      outcome: 'TOO_LATE',
      settlement: 'REFUND_DUE',
    });
    expect(await confirm(shop.db, b, await shop.pay(b))).toEqual({
      outcome: 'CONFIRMED',
      late: false,
    });
    expect([await statusOf(shop, a), await statusOf(shop, b)]).toEqual(['EXPIRED', 'CONFIRMED']);
    expect(await counts(shop, seat)).toEqual({ available: 0, held: 0, sold: 1, total: 1 });
    // One owner at a time, in the order of the ledger.
    expect(await ledger(shop, { sku: seat })).toEqual([
      'reserve 1 b1',
      'release_reservation 1 b1',
      'reserve 1 b1',
      'confirm_sold 1 b1',
    ]);
  }
});
