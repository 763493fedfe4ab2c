import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import { readAfterDeadline } from '../../db/readAfterDeadline.js';
import { describeEachPostgres } from '../setup/database.js';
import { everything, statusOf } from './books.js';
import { other, otherOnBins, claimCall } from './rivals.js';
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
      expect(performance.now() - started).toBeLessThan(3_500);
      await blocker.rollback();
      expect(await statusOf(shop, request.holdId)).toBeUndefined();
      expect(await everything(shop)).toEqual(before);
    }
    const again = { ...request, claimDeadline: await shop.now(3_500) };
    expect((await claim(shop.db, again)).outcome).toBe('HELD');
  });

  it('F8: after its deadline a claim is being decided while its key is busy; then it is its row, or nothing for ever', async () => {
    const sku = await shop.product([2]);
    for (const end of ['commit', 'rollback'] as const) {
      const request = await shop.request({ [sku]: 1 });
      const look = () => readAfterDeadline(shop.db, request.holdId, request.claimDeadline);
      // Before the deadline nobody may be told that nothing will be held, although the key is free.
      expect(await look()).toEqual({ outcome: 'BUSY' });
      const running = await other(shop, ...claimCall(request));
      await shop.shiftClock(4_000);
      expect(await look()).toEqual({ outcome: 'BUSY' });
      await running[end]();
      if (end === 'commit') {
        expect(await look()).toMatchObject({ outcome: 'FOUND', hold: { status: 'HELD' } });
      } else {
        expect(await look()).toEqual({ outcome: 'FREE' });
        expect((await claim(shop.db, request)).outcome).toBe('CLAIM_TOO_LATE');
      }
      await shop.shiftClock(0);
    }
    const refused = await shop.request({ [sku]: 9 });
    await claim(shop.db, refused);
    expect(await readAfterDeadline(shop.db, refused.holdId, await shop.now())).toMatchObject({
      outcome: 'FOUND',
      hold: { status: 'REJECTED', refusal: { outcome: 'INSUFFICIENT_STOCK' } },
    });
  });
});
