import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts } from './books.js';
import { atOnce } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a release by fraud check or operator', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  const entries = (hold: string) =>
    shop.query<{ type: string; reason: string; actor: string }>(
      `select type, reason, actor from tahan.movements where hold_id = $1 order by id`,
      [hold],
    );

  it('R35: 120 holds, each released by the fraud check while it is paid: one of the two, by hold, ledger and money', async () => {
    const sku = await shop.product([60, 60]);
    const holds = await atOnce(120, () => shop.hold({ [sku]: 1 }));
    const ends = await Promise.all(
      holds.map(async (hold, index) => {
        // Who begins, and by how much, differs from hold to hold.
        const after = (turn: boolean) => pause(turn ? (index * 3) % 8 : 0);
        const [released, paid] = await Promise.all([
          after(index % 2 === 0).then(() =>
            cancel(shop.db, hold, 'failed the fraud check', 'shop:fraud-check'),
          ),
          after(index % 2 === 1).then(async () => {
            const payment = await shop.pay(hold, { paymentId: randomUUID() });
            return { ...payment, ...(await confirm(shop.db, hold, payment)) };
          }),
        ]);
        return { hold, released, paid };
      }),
    );
    const won = { CANCELLED: 0, CONFIRMED: 0 };
    for (const { hold, released, paid } of ends) {
      const { status, reason, payments } = (await readHold(shop.db, hold))!;
      const [reserve, ...last] = await entries(hold);
      expect(reserve).toMatchObject({ type: 'reserve' });
      if (status === 'CANCELLED') {
        expect([released.outcome, paid.outcome]).toEqual(['CANCELLED', 'TOO_LATE']);
        expect(reason).toBe('failed the fraud check');
        expect(last).toEqual([
          {
            type: 'release_reservation',
            reason: 'failed the fraud check',
            actor: 'shop:fraud-check',
          },
        ]);
        expect(payments).toMatchObject([
          { inTime: false, settlement: 'REFUND_DUE', settlementReason: 'LATE' },
        ]);
        won.CANCELLED += 1;
      } else {
        expect(['ALREADY', 'PAYMENT_PENDING']).toContain(released.outcome);
        expect([status, paid.outcome]).toEqual(['CONFIRMED', 'CONFIRMED']);
        expect(last).toMatchObject([{ type: 'confirm_sold' }]);
        expect(payments).toMatchObject([{ inTime: true, settlement: 'APPLIED' }]);
        won.CONFIRMED += 1;
      }
    }
    expect(await counts(shop, sku)).toEqual({
      available: won.CANCELLED,
      held: 0,
      sold: won.CONFIRMED,
      total: 120,
    });
    // Both came up, else nothing was raced.
    expect(Math.min(won.CANCELLED, won.CONFIRMED)).toBeGreaterThan(5);
  });

  it('R35: a release that comes twice, from the fraud check and from an operator, gives back once, with the reason of the first', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const [first, second] = [
      await cancel(shop.db, hold, 'stolen card', 'shop:fraud-check'),
      await cancel(shop.db, hold, 'called us', 'operator:ann'),
    ];
    expect([first, second]).toEqual([
      { outcome: 'CANCELLED' },
      { outcome: 'ALREADY', status: 'CANCELLED' },
    ]);
    expect((await entries(hold)).slice(1)).toEqual([
      { type: 'release_reservation', reason: 'stolen card', actor: 'shop:fraud-check' },
    ]);
  });
});
