import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { conflicts } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, statusOf, tally } from './books.js';
import { atOnce, claimCall, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the order of locks', (version) => {
  const shop = sharedShop(version, {
    connections: { claims: 12, changes: 12 },
    connectWithinMs: 20_000,
  });

  it('R23: reserve racing release over two products in opposite order never deadlocks, in 200 rounds on two real connections', async () => {
    const [a, b] = [await shop.product([4, 4]), await shop.product([4, 4])];
    const [reserving, releasing] = [await shop.session(), await shop.session()];
    let open = await shop.hold({ [a]: 6, [b]: 6 });
    for (let round = 1; round <= 200; round += 1) {
      const lines = round % 2 ? { [b]: 2, [a]: 2 } : { [a]: 6, [b]: 6 };
      const request = await shop.request(lines);
      const [claimed, released] = await Promise.all([
        reserving.query<{ answer: { outcome: string } }>(...claimCall(request)),
        releasing.query<{ answer: { outcome: string } }>(
          `select tahan.cancel($1, 'changed my mind', 'buyer') as answer`,
          [open],
        ),
      ]);
      expect(released.rows[0]!.answer).toEqual({ outcome: 'CANCELLED' });
      open = claimed.rows[0]!.answer.outcome === 'HELD' ? request.holdId : await shop.hold(lines);
    }
  });

  it('R23: whoever of the two comes first at a bin, and whichever bin it is, both get through', async () => {
    const [a, b] = [await shop.product([3, 3]), await shop.product([3, 3])].sort() as [
      string,
      string,
    ];
    const before = conflicts.repeated;
    for (const [sku, bin] of [a, b].flatMap((sku) => [
      [sku, 'b1'] as const,
      [sku, 'b2'] as const,
    ])) {
      for (const inLine of [['claim', 'cancel'] as const, ['cancel', 'claim'] as const]) {
        const hold = await shop.hold({ [a]: 4, [b]: 4 });
        const request = await shop.request({ [b]: 1, [a]: 1 });
        const calls = {
          claim: () => claim(shop.db, request),
          cancel: () => cancel(shop.db, hold, 'changed my mind', 'buyer'),
        };
        const blocker = await otherOnBins(shop, sku, bin);
        const answers: Promise<{ outcome: string }>[] = [];
        for (const name of inLine) {
          answers.push(calls[name]());
          await whenWaiting(shop, `tahan.${name}`);
        }
        await blocker.rollback();
        expect(tally(await Promise.all(answers))).toEqual({ HELD: 1, CANCELLED: 1 });
        await cancel(shop.db, request.holdId, 'next round', 'test');
      }
    }
    expect(conflicts.repeated - before).toBe(0);
  });

  it('A2: a claim that needs more overdue holds than it locked at first lets its bins go before it waits for another hold', async () => {
    const sku = await shop.product([9]);
    // The first try locks the eight that end first.
    const ninth = await shop.hold({ [sku]: 1 }, { holdSeconds: 9 });
    for (let i = 1; i <= 8; i += 1) await shop.hold({ [sku]: 1 }, { holdSeconds: i });
    await shop.shiftClock(60_000);
    const blocker = await other(shop, 'select from tahan.holds where id = $1 for update', [ninth]);
    const claiming = shop.claim({ [sku]: 9 });
    await whenWaiting(shop, 'tahan.claim');
    const bin = await other(shop, 'select from tahan.bins where sku = $1 for update nowait', [sku]);
    await bin.rollback();
    await blocker.rollback();
    expect((await claiming).outcome).toBe('HELD');
    expect(await counts(shop, sku)).toMatchObject({ available: 0, held: 9 });
  });

  it('A2: the bins of other products that an overdue hold has are locked in order too, before anything is given back', async () => {
    const [a, b] = [await shop.product([1]), await shop.product([1])].sort() as [string, string];
    const overdue = await shop.hold({ [a]: 1, [b]: 1 });
    await shop.shiftClock(601_000);
    const blocker = await otherOnBins(shop, a);
    const claiming = shop.claim({ [b]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    const lock = 'select from tahan.bins where sku = $1 for update nowait';
    await (await other(shop, lock, [b])).rollback();
    await blocker.rollback();
    expect((await claiming).outcome).toBe('HELD');
    expect(await statusOf(shop, overdue)).toBe('EXPIRED');
    expect([await counts(shop, a), await counts(shop, b)]).toMatchObject([
      { held: 0 },
      { held: 1 },
    ]);
  });

  it('A3: a bin that a rival emptied in the last moment is not kept locked by the quick pass while the claim waits in order', async () => {
    const sku = await shop.product([1, 1], { allocation: 'spread' });
    // A gate in the WHERE of the quick pass: it waits there with its snapshot taken and no lock yet.
    const [source] = await shop.query<{ text: string }>(
      `select pg_get_functiondef('tahan.quick_bin'::regproc) as text`,
    );
    const gated = source!.text.replace('where b.sku = p_sku', '$& and tahan.gate(p_sku)');
    expect(gated).not.toBe(source!.text);
    await shop.query(`create function tahan.gate(p_sku text) returns boolean language plpgsql volatile as $$
      begin perform pg_advisory_xact_lock_shared(hashtext(p_sku)); return true; end $$; ${gated}`);

    const gate = await other(shop, 'select pg_advisory_xact_lock(hashtext($1))', [sku]);
    const claiming = shop.claim({ [sku]: 1 });
    await whenWaiting(shop, 'tahan.claim');
    await shop.query(source!.text);
    const [first, second] = [
      await otherOnBins(shop, sku, 'b1'),
      await otherOnBins(shop, sku, 'b2'),
    ];
    await second.client.query(
      `select move_units(id, 'manual_adjustment', 1, null, null, 'count', 'rival', '{}', now(), -1)
       from bins where sku = $1 and code = 'b2'`,
      [sku],
    );
    await second.commit();
    await gate.rollback();
    const waits = `select wait_event from pg_stat_activity
      where datname = current_database() and query like '%tahan.claim%' and wait_event_type = 'Lock'`;
    await expect.poll(() => shop.query(waits)).toEqual([{ wait_event: 'transactionid' }]);
    const lock = `select from tahan.bins where sku = $1 and code = 'b2' for update nowait`;
    await (await other(shop, lock, [sku])).rollback();
    await first.rollback();
    expect((await claiming).outcome).toBe('HELD');
  });

  it('A6: a late payment takes nobody back and waits for no other hold, while a claim that began before its hold expired waits for one', async () => {
    const sku = await shop.product([2], { latePayment: 'accept_if_available' });
    const [first, late] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })].sort() as [
      string,
      string,
    ];
    await shop.shiftClock(601_000);
    const blocker = await other(shop, 'select from tahan.holds where id = $1 for update', [first]);
    const claiming = shop.claim({ [sku]: 2 });
    await whenWaiting(shop, 'tahan.claim');
    expect(await expire(shop.db, late)).toEqual({ outcome: 'EXPIRED' });
    await shop.hold({ [sku]: 1 });
    expect(await confirm(shop.db, late, await shop.pay(late))).toMatchObject({
      outcome: 'TOO_LATE',
      settlement: 'REFUND_DUE',
    });
    await blocker.rollback();
    expect(await claiming).toMatchObject({ shortfalls: [{ available: 1 }] });
  });

  it('B02: 200 orders of two products in opposite order, with payments, cancels and adjustments at once, end with 100 sold of each, nothing held and no deadlock', async () => {
    const [a, b] = [await shop.product([250, 250]), await shop.product([250, 250])];
    const before = conflicts.repeated;
    const claimDeadline = await shop.now(60_000);
    const order = async (index: number) => {
      const lines = index % 2 ? { [a]: 1, [b]: 1 } : { [b]: 1, [a]: 1 };
      const hold = await shop.hold(lines, { order: true, claimDeadline });
      if (index % 4 < 2) return cancel(shop.db, hold, 'changed my mind', 'buyer');
      const event = { paymentId: `pay-${index}`, eventId: `event-${index}` };
      const payment = await shop.pay(hold, event);
      const [confirmed, , cancelled] = await Promise.all([
        confirm(shop.db, hold, payment),
        shop.pay(hold, event),
        cancel(shop.db, hold, 'too slow', 'buyer'),
      ]);
      expect(['PAYMENT_PENDING', 'ALREADY']).toContain(cancelled.outcome);
      return confirmed;
    };
    // Fifty buyers, four orders each: no call may wait 7 s for its connection, on a slow machine either.
    const orders = atOnce(50, async (buyer) => {
      const outcomes = [];
      for (let nth = 0; nth < 4; nth += 1) outcomes.push(await order(buyer + nth * 50));
      return outcomes;
    });
    const adjusting = atOnce(20, (index) => {
      const [sku, bin] = [index % 2 ? a : b, index % 4 < 2 ? 'b2' : 'b1'];
      const change = { reason: 'count', actor: 'operator', reference: null };
      return adjust(shop.db, { ...change, sku, bin, delta: 1, requestId: `count-${index}` });
    });
    expect(tally((await orders).flat())).toEqual({ CANCELLED: 100, CONFIRMED: 100 });
    expect(tally(await adjusting)).toEqual({ DONE: 20 });
    for (const sku of [a, b]) {
      expect(await counts(shop, sku)).toEqual({ available: 410, held: 0, sold: 100, total: 510 });
    }
    // No call took longer than 8 s, or it would have failed: the pools allow no more.
    expect(conflicts.repeated - before).toBe(0);
  });
});
