import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { putBin } from '../../db/bin.js';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { count } from '../../db/count.js';
import { conflicts } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { move } from '../../db/move.js';
import { putProduct } from '../../db/product.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readChanges } from '../../db/readChanges.js';
import { readHold } from '../../db/readHold.js';
import { readMovements } from '../../db/readMovements.js';
import { readStock } from '../../db/readStock.js';
import type { StockChange } from '../../db/stock.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, tally } from './books.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the keeping of stock', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  function change(sku: string, rest: Partial<StockChange> = {}): StockChange {
    const given = { bin: 'b1', reason: 'count', actor: 'mia', reference: null };
    return { sku, requestId: randomUUID(), ...given, ...rest };
  }

  /** Pays these holds, cancels those, and lets the others expire: each must work. */
  async function endAll(holds: string[], paid: number, cancelled: number): Promise<void> {
    for (const hold of holds.slice(0, paid)) {
      const confirmed = await confirm(shop.db, hold, await shop.pay(hold));
      expect(confirmed.outcome).toBe('CONFIRMED');
    }
    for (const hold of holds.slice(paid, paid + cancelled)) {
      expect((await cancel(shop.db, hold, 'changed my mind', 'buyer')).outcome).toBe('CANCELLED');
    }
    await shop.shiftClock(601_000);
    for (const hold of holds.slice(paid + cancelled)) {
      expect((await expire(shop.db, hold)).outcome).toBe('EXPIRED');
    }
  }

  it('B20: 80 available, 20 held, 200 counted where 100 were expected: 180 are available, and the held ones end as they do', async () => {
    const sku = await shop.product([100]);
    const holds = await atOnce(10, () => shop.hold({ [sku]: 2 }));
    const counted = { ...change(sku), counted: 200, expected: 100 };
    expect(await count(shop.db, counted)).toEqual({
      outcome: 'DONE',
      version: 12,
      counts: { available: 180, held: 20, sold: 0 },
      safetyStock: 0,
    });
    expect((await ledger(shop, { sku })).at(-1)).toBe('manual_adjustment 100 b1');
    await endAll(holds, 4, 3);
    expect(await counts(shop, sku)).toEqual({ available: 192, held: 0, sold: 8, total: 200 });
  });

  it('B20: a count below what is held is refused; the open holds are then paid, cancelled and expired, and nothing is below zero', async () => {
    const sku = await shop.product([10]);
    const holds = await atOnce(8, () => shop.hold({ [sku]: 1 }));
    const before = await everything(shop);
    const refused = { outcome: 'INSUFFICIENT_STOCK', available: 2 };
    expect(await adjust(shop.db, { ...change(sku), delta: -5 })).toEqual(refused);
    expect(await count(shop.db, { ...change(sku), counted: 5, expected: 10 })).toEqual(refused);
    expect(await everything(shop)).toEqual(before);
    await endAll(holds, 4, 2);
    expect(await counts(shop, sku)).toEqual({ available: 6, held: 0, sold: 4, total: 10 });
  });

  it('B20: without a reason neither a count nor a move changes anything', async () => {
    const sku = await shop.product([5, 5]);
    const before = await everything(shop);
    for (const reason of ['', ' ', '\n']) {
      const asked = change(sku, { reason });
      const needed = { outcome: 'REASON_REQUIRED' };
      expect(await count(shop.db, { ...asked, counted: 6, expected: 5 })).toEqual(needed);
      expect(await move(shop.db, { ...asked, to: 'b2', quantity: 1 })).toEqual(needed);
    }
    expect(await everything(shop)).toEqual(before);
  });

  it('R37: a count meets claims, cancels and expiries and still fits; a sale or a delivery meanwhile makes it STOCK_CHANGED with what is there', async () => {
    const sku = await shop.product([10]);
    const [sold, ...rest] = await atOnce(4, () => shop.hold({ [sku]: 1 }));
    await cancel(shop.db, rest[0]!, 'changed my mind', 'buyer');
    const fits = { ...change(sku), counted: 11, expected: 10 };
    expect(await count(shop.db, fits)).toMatchObject({ counts: { available: 8, held: 3 } });
    await confirm(shop.db, sold!, await shop.pay(sold!));
    const before = await everything(shop);
    const stale = { ...change(sku), counted: 12, expected: 11 };
    const changed = {
      outcome: 'STOCK_CHANGED',
      counts: { available: 8, held: 2, sold: 1 },
    };
    expect(await count(shop.db, stale)).toEqual(changed);
    expect(await everything(shop)).toEqual(before);
    // The refusal is kept under its request id; the new count has a new one.
    await count(shop.db, { ...change(sku), counted: 11, expected: 10 });
    expect(await count(shop.db, stale)).toEqual(changed);
    expect(await count(shop.db, { ...stale, expected: 10 })).toEqual({ outcome: 'KEY_REUSED' });
  });

  it('R37: counted as expected is DONE without a movement, is kept under its request id, and a count is repeated once', async () => {
    const sku = await shop.product([3]);
    const same = { ...change(sku), counted: 3, expected: 3 };
    const done = {
      outcome: 'DONE',
      version: 1,
      counts: { available: 3, held: 0, sold: 0 },
      safetyStock: 0,
    };
    expect(await count(shop.db, same)).toEqual(done);
    expect(await ledger(shop, { sku })).toEqual([]);
    const more = { ...change(sku), counted: 5, expected: 3 };
    const answers = await atOnce(5, () => count(shop.db, more));
    expect(answers).toEqual(
      Array(5).fill({ ...done, version: 2, counts: { available: 5, held: 0, sold: 0 } }),
    );
    // The same key after the stock has changed: what it answered at first.
    expect(await count(shop.db, same)).toEqual(done);
    expect(await ledger(shop, { sku })).toEqual(['manual_adjustment 2 b1']);
  });

  it('R37: a move is two adjustments of one request, which say where to and where from; repeated, also at once, it is made once', async () => {
    const sku = await shop.product([10, 1]);
    const asked = {
      ...change(sku, { reason: 'nearer', reference: 'W-3' }),
      to: 'b2',
      quantity: 4,
    };
    const first = await other(
      shop,
      `select tahan.move_stock($1, 'b1', 'b2', 4, 'nearer', 'mia', $2, 'W-3') as answer`,
      [sku, asked.requestId],
    );
    const repeats = atOnce(4, () => move(shop.db, asked));
    await whenWaiting(shop, 'tahan.move_stock', 4);
    await first.commit();
    expect(await repeats).toEqual(Array(4).fill(first.answer));
    expect(first.answer).toEqual({
      outcome: 'DONE',
      from: { bin: 'b1', version: 2, safetyStock: 0, counts: { available: 6, held: 0, sold: 0 } },
      to: { bin: 'b2', version: 2, safetyStock: 0, counts: { available: 5, held: 0, sold: 0 } },
    });
    const { items } = await readMovements(shop.db, { sku, type: 'manual_adjustment', limit: 9 });
    expect(
      items.map(({ bin, quantity, from, to, requestId, reason, actor, metadata }) => [
        [bin, quantity, from.available, to.available],
        [requestId, reason, actor, metadata],
      ]),
    ).toEqual([
      [
        ['b2', 4, 1, 5],
        [asked.requestId, 'nearer', 'mia', { reference: 'W-3', moved_from: 'b1' }],
      ],
      [
        ['b1', 4, 10, 6],
        [asked.requestId, 'nearer', 'mia', { reference: 'W-3', moved_to: 'b2' }],
      ],
    ]);
    expect(await move(shop.db, { ...asked, quantity: 5 })).toEqual({ outcome: 'KEY_REUSED' });
    const sameKey = { ...change(sku, { requestId: asked.requestId }), delta: 4 };
    expect(await adjust(shop.db, sameKey)).toEqual({ outcome: 'KEY_REUSED' });
  });

  it('R37: a move takes neither what is held nor more than there is, needs two bins of one product, and never overfills one', async () => {
    const sku = await shop.product([5, 0, 2_000_000_000]);
    await shop.hold({ [sku]: 2 });
    const before = await everything(shop);
    const asked = (rest: object) =>
      move(shop.db, { ...change(sku), to: 'b2', quantity: 1, ...rest });
    expect(await asked({ quantity: 4 })).toEqual({ outcome: 'INSUFFICIENT_STOCK', available: 3 });
    expect(await asked({ to: 'b1' })).toEqual({ outcome: 'SAME_BIN' });
    expect(await asked({ to: 'b3' })).toEqual({ outcome: 'INVALID_QUANTITY' });
    for (const quantity of [0, -1]) {
      expect(await asked({ quantity })).toEqual({ outcome: 'INVALID_QUANTITY' });
    }
    const nothing = { outcome: 'NOT_FOUND', what: 'bin', bin: 'b9' };
    expect(await asked({ to: 'b9' })).toEqual(nothing);
    expect(await asked({ bin: 'b9' })).toEqual(nothing);
    expect(await asked({ sku: 'none' })).toEqual({ outcome: 'NOT_FOUND', what: 'product' });
    // A bin of another product is none of this one's.
    const theirs = await shop.product([1]);
    await putBin(shop.db, { sku: theirs, code: 'b7' }, { actor: 'mia', reason: null });
    expect(await asked({ to: 'b7' })).toMatchObject({ outcome: 'NOT_FOUND', what: 'bin' });
    expect((await bins(shop, sku)).slice(0, 2)).toEqual([
      [3, 2, 0],
      [0, 0, 0],
    ]);
    expect(await asked({ quantity: 3 })).toMatchObject({ outcome: 'DONE' });
    expect(before).not.toEqual(await everything(shop));
  });

  it('R37: moves to and fro between two bins at once, with claims, lose no unit and never deadlock', async () => {
    // Enough in each for all the moves that may leave it before one comes back.
    const sku = await shop.product([100, 100]);
    const before = conflicts.repeated;
    const answers = await atOnce<{ outcome: string }>(40, (index) => {
      if (index % 4 === 3) return shop.claim({ [sku]: 1 });
      const [bin, to] = index % 2 ? ['b1', 'b2'] : ['b2', 'b1'];
      return move(shop.db, { ...change(sku, { bin: bin }), to: to, quantity: 1 + (index % 3) });
    });
    expect(tally(answers)).toEqual({ DONE: 30, HELD: 10 });
    expect(conflicts.repeated - before).toBe(0);
    expect(await counts(shop, sku)).toEqual({ available: 190, held: 10, sold: 0, total: 200 });
  });

  it('R36: of 10 available with 2 of safety 8 are sold; a safety stock above the stock sells none and is never negative', async () => {
    const sku = await shop.product([10], { safetyStock: [2] });
    const answers = await atOnce(10, () => shop.claim({ [sku]: 1 }));
    expect(tally(answers)).toEqual({ HELD: 8, INSUFFICIENT_STOCK: 2 });
    const shown = async () => (await readAvailability(shop.db, [sku]))[0]!;
    expect(await shown()).toMatchObject({ available: 2, sellable: 0, held: 8, safetyStock: 2 });
    const mia = { actor: 'mia', reason: 'peak season' };
    await putBin(shop.db, { sku, code: 'b1', safetyStock: 50 }, mia);
    expect(await shown()).toMatchObject({ available: 2, sellable: 0, safetyStock: 50 });
    expect(await shop.claim({ [sku]: 1 })).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku, requested: 1, available: 0 }],
    });
    const { items } = await readStock(shop.db, { limit: 10_000 });
    expect(items.find((bin) => bin.sku === sku)).toMatchObject({ sellable: 0, available: 2 });
  });

  it('R36: safety stock raised and lowered while holds are open lets them all end, and what comes back is sold above it only', async () => {
    const sku = await shop.product([10]);
    const holds = await atOnce(9, () => shop.hold({ [sku]: 1 }));
    const mia = { actor: 'mia', reason: 'peak season' };
    const safety = (safetyStock: number) => putBin(shop.db, { sku, code: 'b1', safetyStock }, mia);
    await safety(5);
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('INSUFFICIENT_STOCK');
    await cancel(shop.db, holds[8]!, 'changed my mind', 'buyer');
    await safety(1);
    await shop.hold({ [sku]: 1 });
    expect((await shop.claim({ [sku]: 1 })).outcome).toBe('INSUFFICIENT_STOCK');
    await safety(9);
    await endAll(holds.slice(0, 8), 3, 3);
    const [shown] = await readAvailability(shop.db, [sku]);
    expect(shown).toMatchObject({ available: 7, sellable: 0, held: 0, sold: 3 });
    await shop.shiftClock(0);
    await safety(0);
  });

  it('R36: the changes of a product and of its bins are read newest first, page by page, and none of another product', async () => {
    const sku = await shop.product([1, 1]);
    const near = `${sku}-2`;
    const mia = { actor: 'mia', reason: 'peak season' };
    await putProduct(shop.db, near, {}, mia);
    await putBin(shop.db, { sku: near, code: 'b1', safetyStock: 1 }, mia);
    await putProduct(shop.db, sku, { active: false, priceMinor: 5, currency: 'EUR' }, mia);
    await putBin(shop.db, { sku, code: 'b2', safetyStock: 3 }, mia);
    const all = await readChanges(shop.db, { sku, limit: 10 });
    expect(all.items.map(({ bin, reason }) => [bin, reason])).toEqual([
      ['b2', 'peak season'],
      [null, 'peak season'],
      ['b2', 'test'],
      ['b1', 'test'],
      [null, 'test'],
    ]);
    expect(all.items[0]).toMatchObject({
      before: { safetyStock: 0 },
      after: { safetyStock: 3 },
      actor: 'mia',
    });
    expect(all.items[1]).toMatchObject({ before: { active: true }, after: { active: false } });
    const first = await readChanges(shop.db, { sku, limit: 3 });
    const rest = await readChanges(shop.db, { sku, limit: 3, cursor: first.nextCursor! });
    expect([...first.items, ...rest.items]).toEqual(all.items);
    expect(rest.nextCursor).toBeNull();
    const plan = await shop.query<{ 'QUERY PLAN': string }>(
      `explain select from tahan.setting_changes where what = 'product x' order by id desc limit 9`,
    );
    expect(JSON.stringify(plan)).toContain('setting_changes_by_what');
  });

  it('B21: a product that is switched off keeps its open holds: they are paid, cancelled, extended and expired, show their line, and the ledger is whole', async () => {
    const sku = await shop.product([9]);
    const holds = await atOnce(4, () => shop.hold({ [sku]: 1 }));
    await putProduct(shop.db, sku, { active: false }, { actor: 'mia', reason: 'recall' });
    const refused = await shop.claim({ [sku]: 1 });
    expect(refused.outcome).toBe('PRODUCT_INACTIVE');
    for (const text of [
      `delete from tahan.products where sku = $1`,
      `delete from tahan.bins where sku = $1`,
    ]) {
      await expect(shop.query(text, [sku])).rejects.toThrow('append-only');
    }
    await expect(shop.query('truncate tahan.products, tahan.bins')).rejects.toThrow();
    const [paid, cancelled, extended, overdue] = holds as [string, string, string, string];
    expect((await extend(shop.db, extended, 300, randomUUID(), 'buyer')).outcome).toBe('EXTENDED');
    expect((await confirm(shop.db, paid, await shop.pay(paid))).outcome).toBe('CONFIRMED');
    expect((await cancel(shop.db, cancelled, 'changed my mind', 'buyer')).outcome).toBe(
      'CANCELLED',
    );
    await shop.shiftClock(601_000);
    expect((await expire(shop.db, overdue)).outcome).toBe('EXPIRED');
    expect((await expire(shop.db, extended)).outcome).toBe('NOT_DUE');
    for (const hold of holds) {
      const shown = await readHold(shop.db, hold);
      expect(shown?.lines).toMatchObject([{ sku, quantity: 1, allocations: [{ bin: 'b1' }] }]);
    }
    const { items } = await readMovements(shop.db, { sku, limit: 100 });
    expect(items.map(({ type }) => type)).toEqual([
      'release_reservation',
      'release_reservation',
      'confirm_sold',
      'reserve',
      'reserve',
      'reserve',
      'reserve',
      'restock',
    ]);
  });
});
