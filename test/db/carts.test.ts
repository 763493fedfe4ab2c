import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import type { ClaimRequest } from '../../db/claim.js';
import { clearCart } from '../../db/clearCart.js';
import { putCartLine } from '../../db/putCartLine.js';
import { putProduct } from '../../db/product.js';
import { readCart } from '../../db/readCart.js';
import { readHold } from '../../db/readHold.js';
import { removeCartLine } from '../../db/removeCartLine.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, statusOf, tally } from './books.js';
import { atOnce, claimCall, faultOf, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres("a buyer's cart", (version) => {
  const shop = sharedShop(version, { connections: { claims: 12 } });
  const operator = { actor: 'operator', reason: 'test' };
  const euros = (priceMinor: number) => ({ priceMinor, currency: 'EUR' });

  /** What is in a cart, or was taken: { sku: quantity }. */
  const unitsOf = (lines: { sku: string; quantity: number }[]) =>
    Object.fromEntries(lines.map(({ sku, quantity }) => [sku, quantity]));
  const cartOf = async (buyerId: string) => unitsOf((await readCart(shop.db, buyerId)).lines);
  const ordered = async (holdId: string) => unitsOf((await readHold(shop.db, holdId))?.lines ?? []);

  async function fill(
    lines: Record<string, number>,
    buyerId: string = randomUUID(),
  ): Promise<string> {
    for (const [sku, quantity] of Object.entries(lines)) {
      const put = await putCartLine(shop.db, { buyerId, sku, quantity });
      expect(put).toEqual({ outcome: 'PUT' });
    }
    return buyerId;
  }

  /** The order of a cart, as a claim. */
  const ofCart = (buyerId: string, rest: Partial<ClaimRequest> = {}) =>
    shop.request({}, { buyerId, lines: null, order: true, ...rest });

  it('R33, B04: what is put replaces the line of the product: put twice it is one line; a line is taken out, and all of them', async () => {
    const [a, b] = [await shop.product([9], euros(250)), await shop.product([9], euros(100))];
    const buyerId = await fill({ [a]: 2, [b]: 1 });
    await fill({ [a]: 2 }, buyerId);
    expect(await cartOf(buyerId)).toEqual({ [a]: 2, [b]: 1 });
    await fill({ [a]: 10_000 }, buyerId);
    expect(await cartOf(buyerId)).toEqual({ [a]: 10_000, [b]: 1 });
    const remove = () => removeCartLine(shop.db, { buyerId, sku: a });
    expect([await remove(), await remove()]).toEqual([
      { outcome: 'REMOVED' },
      { outcome: 'NOT_THERE' },
    ]);
    expect(await cartOf(buyerId)).toEqual({ [b]: 1 });
    expect(await clearCart(shop.db, buyerId)).toEqual({ outcome: 'CLEARED' });
    expect(await readCart(shop.db, buyerId)).toEqual({ buyerId, lines: [], totals: [] });
    // Nothing was held for any of it.
    expect(await counts(shop, a)).toMatchObject({ available: 9, held: 0 });
  });

  it('R33: a cart shows name, state and price of this moment and the sum of each currency, and stores none of it', async () => {
    const a = await shop.product([9], { ...euros(250), name: 'Ticket' });
    const b = await shop.product([9], { priceMinor: 7, currency: 'IDR' });
    const [c, free] = [await shop.product([9], euros(50)), await shop.product([9])];
    const buyerId = await fill({ [a]: 3, [b]: 2, [c]: 1, [free]: 1 });
    const shown = async () => {
      const { lines, totals } = await readCart(shop.db, buyerId);
      return [lines.find(({ sku }) => sku === a), totals];
    };
    const line = { sku: a, quantity: 3, name: 'Ticket', active: true, currency: 'EUR' };
    const rupiah = { currency: 'IDR', amountMinor: 14 };
    expect(await shown()).toEqual([
      { ...line, unitPriceMinor: 250 },
      [{ currency: 'EUR', amountMinor: 800 }, rupiah],
    ]);
    await putProduct(shop.db, a, { priceMinor: 300, active: false }, operator);
    expect(await shown()).toEqual([
      { ...line, unitPriceMinor: 300, active: false },
      [{ currency: 'EUR', amountMinor: 950 }, rupiah],
    ]);
    const columns = await shop.query<{ name: string }>(
      `select attname as name from pg_attribute
       where attrelid = 'tahan.carts'::regclass and attnum > 0 order by attnum`,
    );
    expect(columns.map(({ name }) => name)).toEqual(['buyer_id', 'sku', 'quantity']);
  });

  it('R33, F11: no odd quantity, unknown or inactive product gets into a cart, nor a 51st product, and the cart stays as it is', async () => {
    const [a, off] = [await shop.product([9]), await shop.product([9], { active: false })];
    const buyerId = await fill({ [a]: 1 });
    const put = (sku: string, quantity: unknown) =>
      putCartLine(shop.db, { buyerId, sku, quantity: quantity as number }).then(
        ({ outcome }) => outcome,
        () => 'refused',
      );
    for (const odd of [0, -1, -10_000, 10_001, 2 ** 31 - 1, null]) {
      expect([odd, await put(a, odd)]).toEqual([odd, 'INVALID_QUANTITY']);
    }
    for (const odd of [1.5, 2 ** 31, 2 ** 53, 'NaN', '1e2', Infinity]) {
      expect([odd, await put(a, odd)]).toEqual([odd, 'refused']);
    }
    expect(await put('never-heard-of', 1)).toBe('NOT_FOUND');
    expect(await put(off, 1)).toBe('PRODUCT_INACTIVE');
    expect(await cartOf(buyerId)).toEqual({ [a]: 1 });

    await shop.query(
      `insert into tahan.products (sku) select 'c-${buyerId}-' || i from generate_series(1, 55) i`,
    );
    const outcomes = await atOnce(55, (index) => put(`c-${buyerId}-${index + 1}`, 1));
    expect(outcomes.filter((outcome) => outcome === 'PUT')).toHaveLength(49);
    expect(outcomes.filter((outcome) => outcome === 'CART_FULL')).toHaveLength(6);
    // A line that is there may still change.
    expect(await put(a, 2)).toBe('PUT');
    expect(Object.keys(await cartOf(buyerId))).toHaveLength(50);
  });

  it('R33: an order of a cart takes its lines at the prices of its moment and empties it; the answer names them, and a repeat finds the same order, whatever is in the cart then', async () => {
    const [a, b] = [await shop.product([9], euros(1250)), await shop.product([9], euros(99))];
    const buyerId = await fill({ [a]: 2, [b]: 3 });
    const untouched = await fill({ [a]: 1 });
    const request = await ofCart(buyerId);
    const lines = [a, b].sort().map((sku) => ({ sku, quantity: sku === a ? 2 : 3 }));
    expect(await claim(shop.db, request)).toMatchObject({ outcome: 'HELD', lines });
    expect([await cartOf(buyerId), await cartOf(untouched)]).toEqual([{}, { [a]: 1 }]);
    await putProduct(shop.db, a, { priceMinor: 9999 }, operator);
    await fill({ [b]: 1 }, buyerId);
    expect(await claim(shop.db, request)).toMatchObject({ outcome: 'ALREADY', lines });
    const late = { ...request, claimDeadline: await shop.now() };
    expect((await claim(shop.db, late)).outcome).toBe('ALREADY');
    expect(await cartOf(buyerId)).toEqual({ [b]: 1 });
    const hold = await readHold(shop.db, request.holdId);
    expect(unitsOf(hold!.lines)).toEqual({ [a]: 2, [b]: 3 });
    expect(hold!.order).toMatchObject({ status: 'pending_payment', totalMinor: 2797 });
  });

  it('R33: an empty cart is CART_EMPTY and kept, so that a slow first attempt takes nothing that came later; a claim without lines that is no order takes no cart', async () => {
    const a = await shop.product([9], euros(100));
    const buyerId = randomUUID();
    const request = await ofCart(buyerId);
    const refusal = { outcome: 'CART_EMPTY', requestHash: 'hash' };
    expect(await claim(shop.db, request)).toEqual(refusal);
    expect(await statusOf(shop, request.holdId)).toBe('REJECTED');
    await fill({ [a]: 1 }, buyerId);
    expect(await claim(shop.db, request)).toEqual(refusal);
    const hold = await ofCart(buyerId, { order: false });
    await expect(claim(shop.db, hold)).rejects.toThrow('a claim needs lines');
    expect(await statusOf(shop, hold.holdId)).toBeUndefined();
    expect(await cartOf(buyerId)).toEqual({ [a]: 1 });
    expect((await claim(shop.db, await ofCart(buyerId))).outcome).toBe('HELD');
  });

  it('R33: one line short, one product switched off, two currencies, a limit passed: the whole is refused, and stock, ledger and cart are as they were', async () => {
    const a = await shop.product([9], euros(100));
    const short = await shop.product([1], euros(100));
    const off = await shop.product([9], euros(100));
    const dollar = await shop.product([9], { priceMinor: 100, currency: 'USD' });
    const one = await shop.product([9], { ...euros(100), perBuyerLimit: 1 });
    const refused: [Record<string, number>, object][] = [
      [
        { [a]: 1, [short]: 2 },
        { outcome: 'INSUFFICIENT_STOCK', shortfalls: [{ sku: short, requested: 2, available: 1 }] },
      ],
      [
        { [a]: 1, [off]: 1 },
        { outcome: 'PRODUCT_INACTIVE', sku: off },
      ],
      [
        { [a]: 1, [dollar]: 1 },
        { outcome: 'MIXED_CURRENCIES', currencies: ['EUR', 'USD'] },
      ],
      [
        { [a]: 1, [one]: 2 },
        { outcome: 'BUYER_LIMIT', sku: one, limit: 1 },
      ],
    ];
    const buyers = await Promise.all(refused.map(([lines]) => fill(lines)));
    await putProduct(shop.db, off, { active: false }, operator);
    const before = await everything(shop);
    for (const [index, [, refusal]] of refused.entries()) {
      const request = await ofCart(buyers[index]!);
      expect(await claim(shop.db, request)).toEqual({ ...refusal, requestHash: 'hash' });
      expect(await statusOf(shop, request.holdId)).toBe('REJECTED');
    }
    const tooLong = await ofCart(buyers[0]!, { holdSeconds: 1801 });
    expect((await claim(shop.db, tooLong)).outcome).toBe('HOLD_TOO_LONG');
    expect(await everything(shop)).toEqual(before);
  });

  it('R33, F8: when its deadline ends the wait, or its backend is killed, an order leaves the cart as it is; a change of the cart that waits too long is STOCK_LOCK_TIMEOUT and changes nothing', async () => {
    const a = await shop.product([9], euros(100));
    const buyerId = await fill({ [a]: 2 });
    const request = await ofCart(buyerId);
    const before = await everything(shop);
    const buyersLock = () =>
      other(shop, 'select pg_advisory_xact_lock(tahan.buyer_lock($1))', [buyerId]);
    for (const rival of [buyersLock, () => otherOnBins(shop, a)]) {
      const blocker = await rival();
      const claimDeadline = await shop.now(200);
      const started = performance.now();
      expect(await claim(shop.db, { ...request, claimDeadline })).toEqual({
        outcome: 'CLAIM_TOO_LATE',
      });
      // Not the 4 s of the pool's budget.
      expect(performance.now() - started).toBeLessThan(2_000);
      await blocker.rollback();
      expect(await everything(shop)).toEqual(before);
    }
    // The deadline passes while the claim waits, and nothing ends the wait: what it then sees is no refusal.
    const empty = randomUUID();
    const slow = await other(shop, 'select pg_advisory_xact_lock(tahan.buyer_lock($1))', [empty]);
    const late = await ofCart(empty);
    const waiting = claim(shop.db, late);
    await whenWaiting(shop, 'tahan.claim', 1, waiting);
    await shop.shiftClock(60_000);
    await slow.rollback();
    expect(await waiting).toEqual({ outcome: 'CLAIM_TOO_LATE' });
    expect(await statusOf(shop, late.holdId)).toBeUndefined();
    await shop.shiftClock(0);

    const blocker = await otherOnBins(shop, a);
    const dying = await shop.session();
    const { rows } = await dying.query<{ pid: number }>('select pg_backend_pid() as pid');
    const claiming = dying.query(...claimCall(request)).then(
      () => 'answered',
      (error: { code?: string }) => error.code ?? 'gone',
    );
    await whenWaiting(shop, 'tahan.claim', 1, claiming);
    await shop.query('select pg_terminate_backend($1)', [rows[0]!.pid]);
    expect(await claiming).toBe('57P01');
    await blocker.rollback();
    expect(await everything(shop)).toEqual(before);

    const holder = await buyersLock();
    const soon = { lockBudgetMs: 50 };
    for (const change of [
      () => putCartLine(shop.db, { buyerId, sku: a, quantity: 1 }, soon),
      () => removeCartLine(shop.db, { buyerId, sku: a }, soon),
      () => clearCart(shop.db, buyerId, soon),
    ]) {
      expect(await faultOf(change())).toBe('STOCK_LOCK_TIMEOUT');
    }
    await holder.rollback();
    expect(await everything(shop)).toEqual(before);
    expect(
      (await claim(shop.db, { ...request, claimDeadline: await shop.now(3_500) })).outcome,
    ).toBe('HELD');
    expect(await ordered(request.holdId)).toEqual({ [a]: 2 });
  });

  it('R33, A10: changes of a cart that wait for its buyer keep no change of stock, and so no payment, out', async () => {
    const sku = await shop.product([9]);
    const buyerId = randomUUID();
    const blocker = await other(shop, 'select pg_advisory_xact_lock(tahan.buyer_lock($1))', [
      buyerId,
    ]);
    let waiting = 0;
    const puts = atOnce(4, async () => {
      waiting += 1;
      await putCartLine(shop.db, { buyerId, sku, quantity: 1 }, { lockBudgetMs: 3_000 }).finally(
        () => (waiting -= 1),
      );
    });
    puts.catch(() => {});
    await whenWaiting(shop, 'tahan.put_cart_line', 4);
    expect(await putProduct(shop.db, sku, { name: 'Ticket' }, operator)).toEqual({
      outcome: 'CHANGED',
    });
    expect(waiting).toBe(4);
    await blocker.rollback();
    await puts;
    expect(await cartOf(buyerId)).toEqual({ [sku]: 1 });
  });

  it('R33: 20 orders of one cart at once, each with a key of its own, are one order and 19 times CART_EMPTY', async () => {
    const [a, b] = [await shop.product([50], euros(100)), await shop.product([50], euros(100))];
    const buyerId = await fill({ [a]: 2, [b]: 1 });
    const requests = await Promise.all(Array.from({ length: 20 }, () => ofCart(buyerId)));
    const answers = await Promise.all(requests.map((request) => claim(shop.db, request)));
    expect(tally(answers)).toEqual({ HELD: 1, CART_EMPTY: 19 });
    expect([await counts(shop, a), await counts(shop, b)]).toMatchObject([
      { held: 2 },
      { held: 1 },
    ]);
    expect(await cartOf(buyerId)).toEqual({});
  });

  it('R33: what is put or taken out while an order is being claimed is in the order or still in the cart, never in both or in neither: 100 rounds', async () => {
    const a = await shop.product([2_000], euros(100));
    const b = await shop.product([2_000], euros(100));
    const met = new Set<string>();
    for (let round = 0; round < 100; round += 1) {
      const buyerId = await fill({ [a]: 1, [b]: 1 });
      const request = await ofCart(buyerId);
      const place = () => claim(shop.db, request);
      const early = round % 2 ? place() : undefined;
      const changes = [
        putCartLine(shop.db, { buyerId, sku: a, quantity: 5 }),
        removeCartLine(shop.db, { buyerId, sku: b }),
      ] as const;
      const [claimed, , removed] = await Promise.all([early ?? place(), ...changes]);
      expect(claimed.outcome).toBe('HELD');
      const [order, cart] = [await ordered(request.holdId), await cartOf(buyerId)];
      // The line of `a` was changed before the order, which then has 5, or after it: 1, and 5 in the cart.
      expect([
        { order: 5, cart: undefined },
        { order: 1, cart: 5 },
      ]).toContainEqual({ order: order[a], cart: cart[a] });
      // The line of `b` was taken out of the cart, or it was in the order.
      expect([order[b], cart[b]]).toEqual([
        removed.outcome === 'REMOVED' ? undefined : 1,
        undefined,
      ]);
      met.add(`${order[a]} ${removed.outcome}`);
    }
    // Whichever came first, both was met; else this would show nothing.
    expect([...met]).toEqual(expect.arrayContaining(['1 NOT_THERE', '5 REMOVED']));
  });
});
