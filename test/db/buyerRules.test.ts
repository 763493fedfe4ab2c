import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { putBuyerRules } from '../../db/buyerRules.js';
import type { BuyerRules } from '../../db/buyerRules.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { readBuyerRules } from '../../db/readBuyerRules.js';
import { readHold } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, ledger, statusOf, tally } from './books.js';
import { limitRounds } from './limitRounds.js';
import { atOnce, call, claimCall } from './rivals.js';
import { sharedShop } from './shop.js';

const by = { actor: 'operator:ann', reason: 'scalpers' };
const none: BuyerRules = { maxOpenHolds: null, coolDown: null };

describeEachPostgres('rules about buyers', (version) => {
  const shop = sharedShop(version, { connections: { claims: 16 }, connectWithinMs: 20_000 });
  const rules = (set: Partial<BuyerRules>) => putBuyerRules(shop.db, set, by);
  const buyer = () => ({ buyerId: `buyer-${randomUUID()}` });

  afterEach(async () => {
    await rules(none);
  });

  describe('a number of open holds', () => {
    it('R10: 2 allows two open holds of whatever products; 0 allows none; null has no limit; other buyers are not counted', async () => {
      const [one, other] = [await shop.product([9]), await shop.product([9])];
      await rules({ maxOpenHolds: 2 });
      const anna = buyer();
      await shop.hold({ [one]: 3 }, anna);
      await shop.hold({ [one]: 1, [other]: 1 }, anna);
      const before = await everything(shop);
      const refused = await shop.claim({ [other]: 1 }, anna);
      expect(refused).toMatchObject({ outcome: 'BUYER_LIMIT', openHolds: 2, limit: 2 });
      expect(refused).not.toHaveProperty('sku');
      expect(await everything(shop)).toEqual(before);
      await shop.hold({ [other]: 1 }, buyer());
      await rules({ maxOpenHolds: 0 });
      expect(await shop.claim({ [other]: 1 })).toMatchObject({ outcome: 'BUYER_LIMIT', limit: 0 });
      await rules({ maxOpenHolds: null });
      await shop.hold({ [other]: 1 }, anna);
    });

    it('S11, R10: 64 claims of one buyer at once never pass two open holds, nor get fewer, 10 rounds (200 in test/chaos)', async () => {
      await rules({ maxOpenHolds: 2 });
      await limitRounds(shop, await shop.product([50, 50], { allocation: 'spread' }), 10);
    });

    it('B17: a place comes back with cancel, with expiry, and by the end alone before the expiry ran; what is confirmed takes none', async () => {
      const sku = await shop.product([9]);
      await rules({ maxOpenHolds: 1 });
      const emil = buyer();
      const full = async () =>
        expect(await shop.claim({ [sku]: 1 }, emil)).toMatchObject({ openHolds: 1 });
      const first = await shop.hold({ [sku]: 1 }, emil);
      await full();
      await cancel(shop.db, first, 'changed my mind', 'buyer');
      const second = await shop.hold({ [sku]: 1 }, emil);
      await full();
      await confirm(shop.db, second, await shop.pay(second));
      const third = await shop.hold({ [sku]: 1 }, emil);
      await full();
      await shop.shiftClock(601_000);
      const fourth = await shop.hold({ [sku]: 1 }, emil);
      // Nothing had to be reclaimed for it.
      expect([await statusOf(shop, third), await statusOf(shop, fourth)]).toEqual(['HELD', 'HELD']);
      await full();
      await expire(shop.db, third);
      await full();
      await shop.shiftClock(1_202_000);
      await expire(shop.db, fourth);
      await shop.hold({ [sku]: 1 }, emil);
    });

    it('R10: an overdue hold with a payment in time still counts, until it is confirmed', async () => {
      const sku = await shop.product([9]);
      await rules({ maxOpenHolds: 1 });
      const fritz = buyer();
      const paid = await shop.hold({ [sku]: 1 }, fritz);
      const payment = await shop.pay(paid);
      await shop.shiftClock(601_000);
      expect((await shop.claim({ [sku]: 1 }, fritz)).outcome).toBe('BUYER_LIMIT');
      await confirm(shop.db, paid, payment);
      await shop.hold({ [sku]: 1 }, fritz);
    });

    it('R08, R10: repeats of a claim use up nothing; a refused key stays refused, and a fresh one is decided anew', async () => {
      const sku = await shop.product([9]);
      await rules({ maxOpenHolds: 2 });
      const gina = buyer();
      const same = await shop.request({ [sku]: 1 }, gina);
      const answers = await atOnce(20, () => claim(shop.db, same));
      expect(tally(answers)).toEqual({ HELD: 1, ALREADY: 19 });
      const second = await shop.hold({ [sku]: 1 }, gina);
      const refused = await shop.request({ [sku]: 1 }, gina);
      const refusal = await claim(shop.db, refused);
      expect(refusal).toMatchObject({ outcome: 'BUYER_LIMIT', openHolds: 2 });
      expect(await statusOf(shop, refused.holdId)).toBe('REJECTED');
      await cancel(shop.db, second, 'changed my mind', 'buyer');
      expect(await claim(shop.db, refused)).toEqual(refusal);
      await shop.hold({ [sku]: 1 }, gina);
    });

    it('R10: both limits count: of a product with its own, the own overdue holds are reclaimed as ever', async () => {
      const sku = await shop.product([9], { perBuyerLimit: 1 });
      await rules({ maxOpenHolds: 2 });
      const hugo = buyer();
      const overdue = await shop.hold({ [sku]: 1 }, hugo);
      expect(await shop.claim({ [sku]: 1 }, hugo)).toMatchObject({ sku, limit: 1 });
      await shop.shiftClock(601_000);
      await shop.hold({ [sku]: 1 }, hugo);
      expect(await statusOf(shop, overdue)).toBe('EXPIRED');
      expect(await ledger(shop, { hold: overdue })).toHaveLength(2);
    });

    it('R11: a late payment that is accepted needs no place: its hold is confirmed at once', async () => {
      const sku = await shop.product([9], { latePayment: 'accept_if_available' });
      await rules({ maxOpenHolds: 1, coolDown: { holds: 1, withinSeconds: 60, seconds: 600 } });
      const ida = buyer();
      const late = await shop.hold({ [sku]: 1 }, ida);
      await shop.shiftClock(601_000);
      await expire(shop.db, late);
      await rules({ coolDown: null });
      await shop.hold({ [sku]: 1 }, ida);
      await rules({ coolDown: { holds: 1, withinSeconds: 60, seconds: 600 } });
      const payment = await shop.pay(late);
      expect(await confirm(shop.db, late, payment)).toMatchObject({ outcome: 'CONFIRMED' });
      expect(await counts(shop, sku)).toMatchObject({ held: 1, sold: 1 });
    });

    it('R10: an extension needs no place, and what is open when the rule comes stays open', async () => {
      const sku = await shop.product([9]);
      const jan = buyer();
      const holds = [await shop.hold({ [sku]: 1 }, jan), await shop.hold({ [sku]: 1 }, jan)];
      await rules({ maxOpenHolds: 1 });
      expect((await extend(shop.db, holds[0]!, 60, 'x', 'buyer')).outcome).toBe('EXTENDED');
      expect(await shop.claim({ [sku]: 1 }, jan)).toMatchObject({ openHolds: 2, limit: 1 });
      expect(await statusOf(shop, holds[1]!)).toBe('HELD');
    });

    it('S10: a claim reads the open and the lapsed holds of its buyer, and not the 3,000 others', async () => {
      const sku = await shop.product([9]);
      const karl = buyer();
      await shop.query(
        `insert into tahan.holds (id, buyer_id, idempotency_key, request_hash, status, refusal, created_at, closed_at)
         select gen_random_uuid(), $1, i::text, 'h', 'REJECTED', '{}', now(), now() from generate_series(1, 3000) i`,
        [karl.buyerId],
      );
      await rules({ maxOpenHolds: 2, coolDown: { holds: 2, withinSeconds: 60, seconds: 60 } });
      await shop.hold({ [sku]: 1 }, karl);
      const session = await shop.session();
      await session.query('begin');
      const request = await shop.request({ [sku]: 1 }, karl);
      expect((await call(session, ...claimCall(request))).outcome).toBe('HELD');
      const { rows } = await session.query<{ read: string }>(
        `select seq_tup_read + coalesce(idx_tup_fetch, 0) as read from pg_stat_xact_user_tables where relid = 'tahan.holds'::regclass`,
      );
      await session.query('rollback');
      expect(Number(rows[0]!.read)).toBeLessThan(20);
    });
  });

  describe('a cool-down', () => {
    const coolDown = { holds: 2, withinSeconds: 900, seconds: 300 };
    /** Two holds of 600 s, one made 60 s after the other; the clock stands so many s after the second's end. */
    async function twoLapse(sku: string, who: { buyerId: string }, seconds = 1) {
      const first = await shop.hold({ [sku]: 1 }, who);
      await shop.shiftClock(60_000);
      const second = await shop.hold({ [sku]: 1 }, who);
      await shop.stopClock(second, seconds * 1000);
      return [first, second] as const;
    }
    const retryAt = async (hold: string, seconds: number) =>
      new Date(
        Date.parse((await readHold(shop.db, hold))!.expiresAt!) + seconds * 1000,
      ).toISOString();

    it('S10: after two holds that expired unpaid within 900 s the buyer may not claim for 300 s from the second end, and may then; others may all the time', async () => {
      await rules({ coolDown });
      const sku = await shop.product([9]);
      const lena = buyer();
      const [first, second] = await twoLapse(sku, lena);
      await expire(shop.db, first);
      await shop.hold({ [sku]: 1 }, { ...lena, holdSeconds: 1 });
      await expire(shop.db, second);
      const before = await everything(shop);
      const request = await shop.request({ [sku]: 1 }, lena);
      const refusal = await claim(shop.db, request);
      expect(refusal).toEqual({
        outcome: 'BUYER_COOL_DOWN',
        retryAt: await retryAt(second, 300),
        retryAfterMs: 299_000,
        holds: 2,
        withinSeconds: 900,
        requestHash: 'hash',
      });
      expect(await statusOf(shop, request.holdId)).toBe('REJECTED');
      expect(await everything(shop)).toEqual(before);
      await shop.hold({ [sku]: 1 }, buyer());
      await shop.stopClock(second, 299_999);
      expect((await shop.claim({ [sku]: 1 }, lena)).outcome).toBe('BUYER_COOL_DOWN');
      await shop.stopClock(second, 300_000);
      expect(await claim(shop.db, request)).toEqual(refusal);
      await shop.hold({ [sku]: 1 }, lena);
    });

    it('S10: one that a rival has reclaimed counts like one that its timer has closed', async () => {
      await rules({ coolDown });
      const sku = await shop.product([2]);
      const mona = buyer();
      const holds = await twoLapse(sku, mona);
      // Overdue, but not closed yet: that refuses nobody.
      const third = await shop.hold({ [sku]: 1 }, mona);
      await cancel(shop.db, third, 'changed my mind', 'buyer');
      await shop.hold({ [sku]: 2 }, buyer());
      expect(await Promise.all(holds.map((hold) => statusOf(shop, hold)))).toEqual([
        'EXPIRED',
        'EXPIRED',
      ]);
      expect((await shop.claim({ [sku]: 1 }, mona)).outcome).toBe('BUYER_COOL_DOWN');
    });

    it('S10: what was cancelled, and what a late payment has confirmed, counts not', async () => {
      await rules({ coolDown });
      const sku = await shop.product([9], { latePayment: 'accept_if_available' });
      const nora = buyer();
      const [first, second] = await twoLapse(sku, nora);
      await expire(shop.db, first);
      await cancel(shop.db, second, 'too late', 'buyer');
      await cancel(shop.db, await shop.hold({ [sku]: 1 }, nora), 'no', 'buyer');
      await shop.shiftClock(0);
      const otto = buyer();
      const [late, unpaid] = await twoLapse(sku, otto);
      await expire(shop.db, late);
      await expire(shop.db, unpaid);
      expect((await shop.claim({ [sku]: 1 }, otto)).outcome).toBe('BUYER_COOL_DOWN');
      await confirm(shop.db, late, await shop.pay(late));
      await shop.hold({ [sku]: 1 }, otto);
    });

    it('S10: two that ended further apart than the time do not count together; with a number of 1 each does', async () => {
      await rules({ coolDown: { ...coolDown, withinSeconds: 59 } });
      const sku = await shop.product([9]);
      const paul = buyer();
      for (const hold of await twoLapse(sku, paul)) await expire(shop.db, hold);
      await shop.hold({ [sku]: 1 }, paul);
      await rules({ coolDown: { ...coolDown, withinSeconds: 61 } });
      expect((await shop.claim({ [sku]: 1 }, paul)).outcome).toBe('BUYER_COOL_DOWN');
      await rules({ coolDown: { holds: 3, withinSeconds: 900, seconds: 300 } });
      await shop.hold({ [sku]: 1 }, paul);
      await rules({ coolDown: { holds: 1, withinSeconds: 1, seconds: 2 } });
      expect((await shop.claim({ [sku]: 1 }, paul)).outcome).toBe('BUYER_COOL_DOWN');
    });
  });

  it('R10: a change needs a reason, is kept with before, after and actor, and what is left out keeps its value', async () => {
    const coolDown = { holds: 3, withinSeconds: 3600, seconds: 900 };
    expect(await rules({ maxOpenHolds: 5 })).toEqual({ outcome: 'CHANGED' });
    expect(await rules({ coolDown })).toEqual({ outcome: 'CHANGED' });
    expect(await rules({ maxOpenHolds: 5 })).toEqual({ outcome: 'UNCHANGED' });
    expect(await readBuyerRules(shop.db)).toMatchObject({ maxOpenHolds: 5, coolDown });
    for (const reason of ['', ' \n'])
      expect(await putBuyerRules(shop.db, none, { ...by, reason })).toEqual({
        outcome: 'REASON_REQUIRED',
      });
    expect(await rules({ maxOpenHolds: -1 })).toMatchObject({
      outcome: 'INVALID',
      field: 'buyer_rules_max_open_holds_range',
    });
    expect(await readBuyerRules(shop.db)).toMatchObject({ maxOpenHolds: 5, coolDown });
    const kept = await shop.query(
      `select before, after, actor, reason from tahan.setting_changes where what = 'buyer rules' order by id desc limit 1`,
    );
    expect(kept).toEqual([
      {
        before: { maxOpenHolds: 5, coolDown: null },
        after: { maxOpenHolds: 5, coolDown },
        actor: 'operator:ann',
        reason: 'scalpers',
      },
    ]);
  });
});
