import type { QueryConfig } from 'pg';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import type { Database } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { listOrders } from '../../db/listOrders.js';
import type { OrderFilter } from '../../db/listOrders.js';
import { putProduct } from '../../db/product.js';
import { readHold, readOrder } from '../../db/readHold.js';
import { readProduct } from '../../db/readProduct.js';
import { describeEachPostgres } from '../setup/database.js';
import { statusOf } from './books.js';
import { openShop, sharedShop } from './shop.js';

describeEachPostgres('an order', (version) => {
  const shop = sharedShop(version);
  const operator = { actor: 'operator', reason: 'test' };

  it('R33: an order keeps its number, its total and its prices, whatever the product costs later', async () => {
    const [a, b] = [
      await shop.product([9], { priceMinor: 1250, currency: 'EUR' }),
      await shop.product([9], { priceMinor: 99, currency: 'EUR' }),
    ];
    const hold = await shop.hold({ [a]: 2, [b]: 3 }, { order: true });
    await putProduct(shop.db, a, { priceMinor: 9999 }, operator);
    const shown = await readHold(shop.db, hold);
    expect(shown?.order).toMatchObject({
      currency: 'EUR',
      totalMinor: 2797,
      status: 'pending_payment',
    });
    expect(shown?.order?.orderNumber).toMatch(/^([0-9A-HJKMNP-TV-Z]{4}-){2}[0-9A-HJKMNP-TV-Z]{4}$/);
    const prices = Object.fromEntries(shown!.lines.map((line) => [line.sku, line.unitPriceMinor]));
    expect(prices).toEqual({ [a]: 1250, [b]: 99 });
    expect((await readOrder(shop.db, shown!.order!.orderNumber))?.id).toBe(hold);
    expect((await readProduct(shop.db, a))?.priceMinor).toBe(9999);
    const plain = await readHold(shop.db, await shop.hold({ [a]: 1 }));
    expect(plain?.order).toBeNull();
  });

  it('R33: an order in two currencies, or of a priced and an unpriced product, is MIXED_CURRENCIES; a plain hold of both is not', async () => {
    const euro = await shop.product([9], { priceMinor: 100, currency: 'EUR' });
    const dollar = await shop.product([9], { priceMinor: 100, currency: 'USD' });
    const free = await shop.product([9]);
    const order = { order: true };
    const mixed = await shop.request({ [euro]: 1, [dollar]: 1 }, order);
    expect(await claim(shop.db, mixed)).toMatchObject({
      outcome: 'MIXED_CURRENCIES',
      currencies: ['EUR', 'USD'],
    });
    expect(await statusOf(shop, mixed.holdId)).toBe('REJECTED');
    expect((await shop.claim({ [euro]: 1, [free]: 1 }, order)).outcome).toBe('MIXED_CURRENCIES');
    await shop.hold({ [euro]: 1, [dollar]: 1, [free]: 1 });
    const unpriced = await readHold(shop.db, await shop.hold({ [free]: 1 }, order));
    expect(unpriced?.order).toMatchObject({ currency: null, totalMinor: null });
  });

  it("R33: an order's status is its hold's in other words from the same transaction on, and lists show it; plain holds and refused claims are no orders", async () => {
    const sku = await shop.product([9], { priceMinor: 1000, currency: 'EUR' });
    const place = (buyerId: string) => shop.hold({ [sku]: 1 }, { order: true, buyerId });
    const buyerId = 'lists';
    const made = {
      pending_payment: await place(buyerId),
      paid: await place(buyerId),
      cancelled: await place(buyerId),
      expired: await place(buyerId),
    };
    const ofAnother = await place('another');
    await shop.hold({ [sku]: 1 }, { buyerId });
    expect((await shop.claim({ [sku]: 99 }, { order: true, buyerId })).outcome).toBe(
      'INSUFFICIENT_STOCK',
    );
    await confirm(shop.db, made.paid, await shop.pay(made.paid));
    await cancel(shop.db, made.cancelled, 'no more', 'buyer');
    await shop.stopClock(made.expired, 1);
    await expire(shop.db, made.expired);
    const list = async (filter: Partial<OrderFilter>) =>
      (await listOrders(shop.db, { limit: 50, ...filter })).items.map(({ id }) => id);
    for (const [status, id] of Object.entries(made)) {
      expect((await readHold(shop.db, id))?.order?.status).toBe(status);
      const filter = { status, buyerId } as Partial<OrderFilter>;
      expect([status, await list(filter)]).toEqual([status, [id]]);
    }
    const newest = Object.values(made).reverse();
    expect(await list({ buyerId })).toEqual(newest);
    expect((await list({})).slice(0, 5)).toEqual([ofAnother, ...newest]);
    expect((await list({ status: 'pending_payment' })).slice(0, 2)).toEqual([
      ofAnother,
      made.pending_payment,
    ]);
    const pages: string[][] = [];
    let cursor: string | undefined;
    do {
      const page = await listOrders(shop.db, { buyerId, limit: 3, ...(cursor && { cursor }) });
      pages.push(page.items.map(({ id }) => id));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(pages).toEqual([newest.slice(0, 3), newest.slice(3)]);
  });

  it('R33: a page of orders is read from an index: of 20,000 orders, whatever is asked for, not a tenth is touched', async () => {
    const big = await openShop(version);
    try {
      // Made by hand: only what the list reads. 19,990 paid ones, 10 that are not, and 20,000 refused claims.
      await big.query(`
        set local session_replication_role = replica;
        insert into tahan.holds (id, buyer_id, idempotency_key, request_hash, status, expires_at, late_payment,
          payment_provider, payment_id, created_at, closed_at)
        select gen_random_uuid(), 'buyer-' || i % 2000, i::text, 'h', 'CONFIRMED', now(), 'refund', 'x', i::text,
          now() - i * interval '1 second', now() from generate_series(11, 20000) i;
        insert into tahan.holds (id, buyer_id, idempotency_key, request_hash, status, expires_at, late_payment, created_at, closed_at)
        select gen_random_uuid(), 'rare', i::text, 'h', 'CANCELLED', now(), 'refund', now() - i * interval '1 hour', now()
        from generate_series(1, 10) i;
        insert into tahan.orders select h.id, left(h.id::text, 30), null, null, h.created_at from tahan.holds h;
        insert into tahan.holds (id, buyer_id, idempotency_key, request_hash, status, refusal, created_at, closed_at)
        select gen_random_uuid(), 'refused-' || i, 'k', 'h', 'REJECTED', '{}', now(), now() from generate_series(1, 20000) i;
        analyze tahan.holds; analyze tahan.orders`);
      const asked: Partial<OrderFilter>[] = [
        {},
        { status: 'paid' },
        { status: 'cancelled' },
        { status: 'pending_payment' },
        { buyerId: 'buyer-17' },
        { buyerId: 'rare', status: 'cancelled' },
        { buyerId: 'nobody' },
      ];
      const first = await listOrders(big.db, { limit: 50 });
      asked.push({ cursor: first.nextCursor! });
      const tooMany: unknown[] = [];
      for (const filter of asked) {
        const { text, values } = await statementOf(filter);
        const [{ plan }] = (await big
          .query(`explain (analyze, format json) ${text}`, values)
          .then((rows) => rows.map((row) => ({ plan: Object.values(row)[0] })))) as [
          { plan: [{ Plan: Step }] },
        ];
        const rows = touched(plan[0].Plan);
        if (rows >= 2000) tooMany.push([filter, rows]);
      }
      expect(tooMany).toEqual([]);
    } finally {
      await big.close();
    }
  });

  it('R10, A15: a hold of several products has the smallest hold time, cap and extensions, and the strictest late policy', async () => {
    const long = await shop.product([9], { holdSeconds: 900, latePayment: 'accept_if_available' });
    const short = await shop.product([9], {
      holdSeconds: 60,
      latePayment: 'review',
      maxHoldSeconds: 120,
    });
    const hold = await readHold(shop.db, await shop.hold({ [long]: 1, [short]: 1 }));
    expect(hold?.expiresInSeconds).toBe(60);
    expect(
      await shop.query('select late_payment from tahan.holds where id = $1', [hold?.id]),
    ).toEqual([{ late_payment: 'review' }]);
    expect(await shop.claim({ [long]: 1, [short]: 1 }, { holdSeconds: 121 })).toMatchObject({
      outcome: 'HOLD_TOO_LONG',
      maxHoldSeconds: 120,
    });
  });
});

interface Step {
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  Plans?: Step[];
}

/** Rows that were read from tables, kept or not. */
function touched({ Plans = [], ...step }: Step): number {
  const own = Plans.length > 0 ? 0 : step['Actual Rows'] + (step['Rows Removed by Filter'] ?? 0);
  return Plans.reduce((sum, each) => sum + touched(each), own * step['Actual Loops']);
}

/** The statement that a page is read with, as it would go to Postgres. */
async function statementOf(filter: Partial<OrderFilter>): Promise<Required<QueryConfig>> {
  let asked: QueryConfig | undefined;
  const rows = (query: QueryConfig) => {
    asked = query;
    return Promise.resolve([]);
  };
  await listOrders({ reads: { rows } } as unknown as Database, { limit: 50, ...filter });
  return asked as Required<QueryConfig>;
}
