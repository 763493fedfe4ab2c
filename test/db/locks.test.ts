import { afterAll, beforeAll, expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { openDatabase, stockLockTimeoutMs } from '../../db/database.js';
import type { Database } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { recordPayment } from '../../db/recordPayment.js';
import { describeEachPostgres } from '../setup/database.js';
import { everything } from './books.js';
import { claimCall, faultOf, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('waiting for locks', (version) => {
  const shop = sharedShop(version);
  /** Gives up after 300 ms of lock waits. */
  let impatient: Database;
  beforeAll(() => {
    impatient = openDatabase({ url: shop.url, takeAppRole: true, stockLockTimeoutMs: 300 });
  });
  afterAll(() => impatient.close());

  const change = { bin: 'b1', reason: 'count', actor: 'operator', reference: null };

  it('R25: the budget is 15 s, or what the environment says, between 1 and 120 s; a word is refused', () => {
    const seconds = (text?: string) =>
      stockLockTimeoutMs(text === undefined ? {} : { TAHAN_STOCK_LOCK_TIMEOUT_SECONDS: text }) /
      1000;
    expect([undefined, '', '30', '0', '-1', '1', '120', '121', '1e9', '2.5'].map(seconds)).toEqual([
      15, 15, 30, 1, 1, 1, 120, 120, 120, 2.5,
    ]);
    expect(() => seconds('soon')).toThrow('TAHAN_STOCK_LOCK_TIMEOUT_SECONDS is "soon"');
  });

  it('R25: the lock timeout is set for the transaction only', async () => {
    const sku = await shop.product([1]);
    const client = await shop.session();
    const timeout = async () =>
      (await client.query<{ lock_timeout: string }>('show lock_timeout')).rows[0]!.lock_timeout;
    await client.query('begin');
    await client.query(...claimCall(await shop.request({ [sku]: 1 }), 60_000));
    expect(await timeout()).not.toBe('0');
    await client.query('commit');
    expect(await timeout()).toBe('0');
  });

  // The four codes. Each is asked for in one test of this folder only, so that two of them merged
  // in the SQL turn exactly one test red.
  it('R26: RESERVATION_IN_PROGRESS means that an identical claim is still running', async () => {
    const sku = await shop.product([2]);
    const request = await shop.request({ [sku]: 1 });
    const running = await other(shop, ...claimCall(request));
    expect(await faultOf(claim(impatient, request))).toBe('RESERVATION_IN_PROGRESS');
    await running.commit();
    expect((await claim(impatient, request)).outcome).toBe('ALREADY');
  });

  it('R26: STOCK_LEDGER_BUSY means that this hold is being changed by another call of its own, whatever is asked of it', async () => {
    const sku = await shop.product([2]);
    const hold = await shop.hold({ [sku]: 1 });
    const payment = await shop.pay(hold, { status: 'failed' });
    const before = await everything(shop);
    const releasing = await other(shop, `select tahan.cancel($1, 'x', 'test')`, [hold]);
    const codes = await Promise.all(
      [
        cancel(impatient, hold, 'x', 'test'),
        expire(impatient, hold),
        confirm(impatient, hold, payment),
        extend(impatient, hold, 60, 'x', 'test'),
      ].map(faultOf),
    );
    expect(codes).toEqual(Array(4).fill('STOCK_LEDGER_BUSY'));
    const paid = recordPayment(impatient, { ...payment, status: 'succeeded' });
    expect(await faultOf(paid)).toBe('STOCK_LEDGER_BUSY');
    await releasing.rollback();
    expect(await everything(shop)).toEqual(before);
  });

  it('R26: STOCK_LOCK_TIMEOUT means that somebody else has a bin, a hold to take back, or the buyer; nothing has changed', async () => {
    const sku = await shop.product([3], { perBuyerLimit: 2 });
    const buyer = { buyerId: 'anna' };
    const hold = await shop.hold({ [sku]: 1 }, buyer);
    const paid = await shop.hold({ [sku]: 1 });
    const before = await everything(shop);
    const payment = await shop.pay(paid);
    const onBin = await otherOnBins(shop, sku);
    const codes = await Promise.all(
      [
        shop.request({ [sku]: 1 }).then((request) => claim(impatient, request)),
        cancel(impatient, hold, 'x', 'test'),
        confirm(impatient, paid, payment),
        adjust(impatient, { ...change, sku, delta: 1, requestId: 'x' }),
      ].map(faultOf),
    );
    await shop.shiftClock(601_000);
    codes.push(await faultOf(expire(impatient, hold)));
    await onBin.rollback();

    // Two are overdue, one of them unpaid: a claim of 2 has to take that one back.
    const onHold = await other(shop, `select from tahan.holds where id = $1 for update`, [hold]);
    codes.push(await faultOf(claim(impatient, await shop.request({ [sku]: 2 }))));
    await onHold.rollback();
    const onBuyer = await other(shop, `select pg_advisory_xact_lock(tahan.buyer_lock('anna'))`);
    codes.push(await faultOf(claim(impatient, await shop.request({ [sku]: 1 }, buyer))));
    await onBuyer.rollback();
    expect(codes).toEqual(Array(7).fill('STOCK_LOCK_TIMEOUT'));
    expect(await everything(shop)).toEqual(before);
  });

  it('R26: INSUFFICIENT_STOCK is an answer, not a fault: the other took the last unit and has committed', async () => {
    const sku = await shop.product([1]);
    const winner = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
    const waiting = faultOf(shop.claim({ [sku]: 1 }));
    await whenWaiting(shop, 'tahan.claim');
    await winner.commit();
    expect(await waiting).toMatch('answered {"outcome":"INSUFFICIENT_STOCK"');
  });
});
