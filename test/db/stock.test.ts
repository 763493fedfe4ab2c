import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { putProduct } from '../../db/product.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readMovements } from '../../db/readMovements.js';
import { restock } from '../../db/restock.js';
import type { StockChange } from '../../db/stock.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, everything, ledger, tally } from './books.js';
import { atOnce, other, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('stock and its ledger', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  function change(sku: string, rest: Partial<StockChange> = {}): StockChange {
    const given = { bin: 'b1', reason: 'count', actor: 'mia', reference: null };
    return { sku, requestId: randomUUID(), ...given, ...rest };
  }

  it('R31: the ledger reads like a bank statement: each change of a bin with its type, quantity, from, to, reason and order, in an unbroken chain', async () => {
    const sku = await shop.product([5], { priceMinor: 100, currency: 'EUR' });
    const sold = await shop.hold({ [sku]: 2 }, { order: true });
    await confirm(shop.db, sold, await shop.pay(sold, { amountMinor: 200 }));
    const released = await shop.hold({ [sku]: 1 });
    await cancel(shop.db, released, 'changed my mind', 'buyer');
    await restock(shop.db, { ...change(sku, { reference: 'delivery 7' }), quantity: 4 });
    await adjust(shop.db, { ...change(sku, { reason: 'broken' }), delta: -3 });
    const { items } = await readMovements(shop.db, { sku, limit: 100 });
    const rows = items.reverse();
    expect(
      rows.map((row) => [
        row.binVersion,
        row.type,
        row.quantity,
        row.to.available,
        row.to.held,
        row.to.sold,
      ]),
    ).toEqual([
      [1, 'restock', 5, 5, 0, 0],
      [2, 'reserve', 2, 3, 2, 0],
      [3, 'confirm_sold', 2, 3, 0, 2],
      [4, 'reserve', 1, 2, 1, 2],
      [5, 'release_reservation', 1, 3, 0, 2],
      [6, 'restock', 4, 7, 0, 2],
      [7, 'manual_adjustment', 3, 4, 0, 2],
    ]);
    for (const [index, row] of rows.entries()) {
      expect(row.from).toEqual(rows[index - 1]?.to ?? { available: 0, held: 0, sold: 0 });
    }
    expect(rows[1]).toMatchObject({
      holdId: sold,
      orderNumber: expect.stringMatching(/-/) as string,
    });
    expect(rows[5]).toMatchObject({ actor: 'mia', metadata: { reference: 'delivery 7' } });
    expect(rows[6]).toMatchObject({ reason: 'broken', holdId: null });
    const ofHold = await readMovements(shop.db, { holdId: released, limit: 100 });
    expect(ofHold.items.map(({ type }) => type)).toEqual(['release_reservation', 'reserve']);
  });

  it('R31: the ledger is found by product and time, and by hold, through an index, and read page by page', async () => {
    const sku = await shop.product([1, 1, 1]);
    const [first, second] = await Promise.all([
      readMovements(shop.db, { sku, limit: 2 }),
      readMovements(shop.db, { sku, type: 'restock', limit: 3 }),
    ]);
    expect(second.nextCursor).toBeNull();
    const rest = await readMovements(shop.db, { sku, limit: 2, cursor: first.nextCursor! });
    expect([...first.items, ...rest.items]).toEqual(second.items);
    const future = { from: await shop.now(60_000), limit: 3 };
    expect((await readMovements(shop.db, { sku, ...future })).items).toEqual([]);
    const indexed = await shop.query<{ columns: string }>(
      `select pg_get_indexdef(indexrelid) as columns from pg_index where indrelid = 'tahan.movements'::regclass`,
    );
    const all = indexed.map(({ columns }) => columns).join('\n');
    expect(all).toContain('(sku, created_at, ');
    expect(all).toContain('(hold_id)');
  });

  it('R31: nobody changes the ledger: not the owner, by trigger, and not the app, by privilege', async () => {
    const sku = await shop.product([1]);
    await putProduct(shop.db, sku, { name: 'x' }, { actor: 'mia', reason: 'named' });
    const changes = ['movements', 'setting_changes'].flatMap((table) => [
      `update tahan.${table} set reason = 'x'`,
      `delete from tahan.${table}`,
    ]);
    changes.push('truncate tahan.movements');
    const owner = await shop.session();
    for (const text of changes) await expect(owner.query(text)).rejects.toThrow('append-only');
    await owner.query('set role tahan_app');
    for (const text of changes)
      await expect(owner.query(text)).rejects.toThrow('permission denied');
  });

  it('R37: an adjustment or a restock needs a reason and a quantity, and never leaves less than zero; what it refuses changes nothing', async () => {
    const sku = await shop.product([5]);
    await shop.hold({ [sku]: 2 });
    const before = await everything(shop);
    for (const reason of ['', '  ', '\n']) {
      const asked = change(sku, { reason });
      expect(await adjust(shop.db, { ...asked, delta: 1 })).toEqual({ outcome: 'REASON_REQUIRED' });
      expect(await restock(shop.db, { ...asked, quantity: 1 })).toEqual({
        outcome: 'REASON_REQUIRED',
      });
    }
    expect(await adjust(shop.db, { ...change(sku), delta: -4 })).toEqual({
      outcome: 'INSUFFICIENT_STOCK',
      available: 3,
    });
    for (const quantity of [0, -1]) {
      expect(await restock(shop.db, { ...change(sku), quantity })).toEqual({
        outcome: 'INVALID_QUANTITY',
      });
    }
    expect(await adjust(shop.db, { ...change(sku), delta: 0 })).toEqual({
      outcome: 'INVALID_QUANTITY',
    });
    const nowhere = change(sku, { bin: 'b9' });
    expect(await adjust(shop.db, { ...nowhere, delta: 1 })).toEqual({
      outcome: 'NOT_FOUND',
      what: 'bin',
    });
    expect(await adjust(shop.db, { ...change('nothing'), delta: 1 })).toEqual({
      outcome: 'NOT_FOUND',
      what: 'product',
    });
    expect(await everything(shop)).toEqual(before);
    expect(await adjust(shop.db, { ...change(sku), delta: -3 })).toEqual({
      outcome: 'DONE',
      version: 3,
      counts: { available: 0, held: 2, sold: 0 },
      safetyStock: 0,
    });
    expect((await ledger(shop, { sku })).at(-1)).toBe('manual_adjustment 3 b1');
  });

  it('A7: a change repeated with its request id, also while the first one runs, is made once and answers the same; another change under that id is KEY_REUSED', async () => {
    const sku = await shop.product([5, 0]);
    const asked = change(sku);
    const first = await other(
      shop,
      `select tahan.restock($1, 'b1', 5, 'count', 'mia', $2, null) as answer`,
      [sku, asked.requestId],
    );
    const repeats = atOnce(4, () => restock(shop.db, { ...asked, quantity: 5 }));
    await whenWaiting(shop, 'tahan.restock', 4);
    await first.commit();
    const answers = await repeats;
    expect(answers).toEqual(Array(4).fill(first.answer));
    expect(tally(answers)).toEqual({ DONE: 4 });
    await adjust(shop.db, { ...change(sku), delta: -1 });
    expect(await restock(shop.db, { ...asked, quantity: 5 })).toEqual(answers[0]);
    for (const repeat of [
      restock(shop.db, { ...asked, quantity: 6 }),
      restock(shop.db, { ...asked, quantity: 5, reason: 'other' }),
      adjust(shop.db, { ...asked, delta: 5 }),
    ]) {
      expect(await repeat).toEqual({ outcome: 'KEY_REUSED' });
    }
    const refusal = change(sku);
    const tooMuch = { outcome: 'INSUFFICIENT_STOCK', available: 9 };
    expect(await adjust(shop.db, { ...refusal, delta: -10 })).toEqual(tooMuch);
    await restock(shop.db, { ...change(sku), quantity: 10 });
    expect(await adjust(shop.db, { ...refusal, delta: -10 })).toEqual(tooMuch);
    // The same request id for another bin is another change.
    expect((await restock(shop.db, { ...asked, bin: 'b2', quantity: 5 })).outcome).toBe('DONE');
    expect(await counts(shop, sku)).toMatchObject({ available: 24 });
  });

  it('A15: a bin holds at most 2,000,000,000 units, held and sold ones included; more is INVALID_QUANTITY, not an overflow', async () => {
    const sku = await shop.product([2_000_000_000]);
    await shop.hold({ [sku]: 10 });
    for (const delta of [1, 2_000_000_000, 2_147_483_647]) {
      const tooMuch = { outcome: 'INVALID_QUANTITY' };
      expect(await adjust(shop.db, { ...change(sku), delta })).toEqual(tooMuch);
      expect(await restock(shop.db, { ...change(sku), quantity: delta })).toEqual(tooMuch);
    }
    expect(await counts(shop, sku)).toMatchObject({ available: 1_999_999_990, held: 10 });
    expect(await adjust(shop.db, { ...change(sku), delta: -2_000_000_000 })).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
    });
  });

  it('B20: lowering the stock below what is held is refused, so payments, cancels and expiries of the held units always work; 200 counted where 180 are available adds 20', async () => {
    const sku = await shop.product([10]);
    const holds = [];
    for (let i = 0; i < 8; i += 1) holds.push(await shop.hold({ [sku]: 1 }));
    expect(await adjust(shop.db, { ...change(sku), delta: -5 })).toEqual({
      outcome: 'INSUFFICIENT_STOCK',
      available: 2,
    });
    await adjust(shop.db, { ...change(sku), delta: -2 });
    for (const hold of holds.slice(0, 4)) {
      expect(await confirm(shop.db, hold, await shop.pay(hold))).toMatchObject({
        outcome: 'CONFIRMED',
      });
    }
    for (const hold of holds.slice(4, 6)) {
      expect((await cancel(shop.db, hold, 'changed my mind', 'buyer')).outcome).toBe('CANCELLED');
    }
    await shop.shiftClock(601_000);
    for (const hold of holds.slice(6)) {
      expect((await expire(shop.db, hold)).outcome).toBe('EXPIRED');
    }
    expect(await counts(shop, sku)).toEqual({ available: 4, held: 0, sold: 4, total: 8 });

    const hundred = await shop.product([100]);
    await shop.hold({ [hundred]: 20 });
    await adjust(shop.db, { ...change(hundred), delta: 100 });
    expect((await readAvailability(shop.db, [hundred]))[0]).toMatchObject({
      available: 180,
      held: 20,
    });
  });
});
