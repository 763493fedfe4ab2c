import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { InvalidCursor } from '../../db/readHold.js';
import { readMovements } from '../../db/readMovements.js';
import type { Movement } from '../../db/readMovements.js';
import { readStatement } from '../../db/readStatement.js';
import type { Statement, StatementFilter } from '../../db/readStatement.js';
import { restock } from '../../db/restock.js';
import type { Counts } from '../../db/values.js';
import { describeEachPostgres } from '../setup/database.js';
import { sharedShop } from './shop.js';

const none = { available: 0, held: 0, sold: 0 };

function plus(a: Counts, b: Counts, sign = 1): Counts {
  return {
    available: a.available + sign * b.available,
    held: a.held + sign * b.held,
    sold: a.sold + sign * b.sold,
  };
}

const changesOf = (items: Movement[]) =>
  items.reduce((sum, { from, to }) => plus(sum, plus(to, from, -1)), none);

/** What must hold of every page, whatever was asked. */
function addsUp(page: Statement): void {
  expect(plus(page.opening, changesOf(page.items))).toEqual(page.closing);
  for (const { code, opening, closing } of page.bins) {
    let { version, ...counts } = opening;
    for (const one of page.items.filter(({ bin }) => bin === code)) {
      expect([one.binVersion, one.from]).toEqual([version + 1, counts]);
      [version, counts] = [one.binVersion, one.to];
    }
    expect(closing).toEqual({ version, ...counts });
  }
  const shown = page.bins.map(({ code }) => code);
  expect(page.items.map(({ bin }) => shown.indexOf(bin))).toEqual(
    page.items.map(({ bin }) => shown.indexOf(bin)).sort((a, b) => a - b),
  );
  expect(page.items.every(({ bin }) => shown.includes(bin))).toBe(true);
}

describeEachPostgres('the statement of a product', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  async function statement(filter: Partial<StatementFilter> & { sku: string }): Promise<Statement> {
    const found = await readStatement(shop.db, { limit: 1000, ...filter });
    if (typeof found === 'string') throw new Error(found);
    addsUp(found);
    return found;
  }

  /** All pages, each held against the one before. */
  async function walk(filter: Partial<StatementFilter> & { sku: string; limit: number }) {
    const pages = [await statement(filter)];
    for (let last = pages[0]!; last.nextCursor !== null; last = pages.at(-1)!) {
      const next = await statement({ ...filter, cursor: last.nextCursor });
      expect(next.opening).toEqual(last.closing);
      expect(next.bins[0]!.code).toBe(last.bins.at(-1)!.code);
      expect(next.bins[0]!.opening).toEqual(last.bins.at(-1)!.closing);
      pages.push(next);
    }
    return pages;
  }

  const change = (sku: string, bin: string) => ({
    ...{ sku, bin, reason: 'count', actor: 'mia', requestId: randomUUID(), reference: null },
  });

  /** Some of everything, over three bins. */
  async function busyProduct(): Promise<string> {
    const sku = await shop.product([4, 3, 3]);
    const paid = await shop.hold({ [sku]: 5 });
    await confirm(shop.db, paid, await shop.pay(paid));
    await cancel(shop.db, await shop.hold({ [sku]: 4 }), 'no', 'buyer');
    await adjust(shop.db, { ...change(sku, 'b3'), delta: -1 });
    await restock(shop.db, { ...change(sku, 'b1'), quantity: 7 });
    await shop.hold({ [sku]: 6 });
    return sku;
  }

  it('R31: opening + changes = closing, each from is the to before it, per bin and for the product, in pages of any size that chain', async () => {
    const sku = await busyProduct();
    const whole = await statement({ sku });
    expect(whole.opening).toEqual(none);
    const rows = await shop.query<{ code: string; version: string } & Counts>(
      'select code, available, held, sold, version from tahan.bins where sku = $1 order by id',
      [sku],
    );
    expect(whole.bins.map(({ code, closing }) => ({ code, ...closing }))).toEqual(
      rows.map((row) => ({ ...row, version: Number(row.version) })),
    );
    expect(whole.closing).toEqual(rows.reduce<Counts>((sum, row) => plus(sum, row), none));
    expect(whole.items.length).toBeGreaterThan(12);
    expect(whole.nextCursor).toBeNull();
    for (const limit of [1, 2, 3, 5, whole.items.length - 1, whole.items.length]) {
      const pages = await walk({ sku, limit });
      expect(pages).toHaveLength(Math.ceil(whole.items.length / limit));
      expect(pages.flatMap(({ items }) => items)).toEqual(whole.items);
      expect([pages[0]!.opening, pages.at(-1)!.closing]).toEqual([none, whole.closing]);
      expect(pages.at(-1)!.bins.at(-1)!.code).toBe('b3');
    }
    const alone = await statement({ sku, bin: 'b2' });
    expect(alone.bins).toEqual([whole.bins[1]]);
    expect(alone.closing).toEqual(plus(none, whole.bins[1]!.closing));
  });

  it('an empty period opens as it closes; a bin without a movement stands in it; no product and no bin are told apart', async () => {
    const sku = await shop.product([2, 0]);
    const future = await statement({ sku, from: await shop.now(60_000) });
    expect(future.items).toEqual([]);
    expect(future.opening).toEqual({ available: 2, held: 0, sold: 0 });
    expect(future.closing).toEqual(future.opening);
    expect(future.bins.map(({ code, opening }) => [code, opening.version])).toEqual([
      ['b1', 1],
      ['b2', 0],
    ]);
    const past = await statement({ sku, to: '2020-01-01T00:00:00Z' });
    expect([past.items, past.opening, past.closing]).toEqual([[], none, none]);
    expect((await statement({ sku: await shop.product([]) })).bins).toEqual([]);
    const asked = { limit: 10 };
    expect(await readStatement(shop.db, { sku: 'none', ...asked })).toBe('NO_PRODUCT');
    expect(await readStatement(shop.db, { sku, bin: 'b9', ...asked })).toBe('NO_BIN');
    const other = await shop.product([1, 1]);
    const cursor = (await statement({ sku: other, limit: 1 })).nextCursor!;
    await expect(readStatement(shop.db, { sku, cursor, ...asked })).rejects.toThrow(InvalidCursor);
  });

  it('R31: periods that meet have no gap and no overlap, also when the clock was put back in between', async () => {
    const sku = await shop.product([]);
    await shop.query(`insert into tahan.bins (sku, code) values ($1, 'b1'), ($1, 'b2')`, [sku]);
    const at: string[] = [];
    // 10 minutes on, 5 back, the same again, 1 further back, then on: two bins get their share.
    for (const [index, minutes] of [0, 10, 5, 5, 4, 12, 11].entries()) {
      await shop.shiftClock(minutes * 60_000);
      at.push(await shop.now());
      await restock(shop.db, {
        ...change(sku, index % 3 === 0 ? 'b2' : 'b1'),
        quantity: index + 1,
      });
    }
    const whole = await statement({ sku });
    const times = whole.items.map(({ createdAt }) => createdAt);
    expect([...times].sort()).not.toEqual(times);
    const cuts = [
      ...at,
      ...(await Promise.all([-1, 3, 7, 20].map((min) => shop.now(min * 60_000)))),
    ];
    for (const cut of cuts) {
      const [before, after] = [
        await statement({ sku, to: cut }),
        await statement({ sku, from: cut }),
      ];
      expect(after.opening).toEqual(before.closing);
      expect(after.bins.map(({ opening }) => opening)).toEqual(
        before.bins.map(({ closing }) => closing),
      );
      const both = [...before.items, ...after.items].map(({ id }) => id);
      expect(both.sort()).toEqual(whole.items.map(({ id }) => id).sort());
      // A movement may be in a later period than its time says, never in an earlier one.
      expect(after.items.length).toBeGreaterThanOrEqual(times.filter((time) => time >= cut).length);
      expect(before.items.every(({ createdAt }) => createdAt < cut)).toBe(true);
    }
  });

  it('R31: a movement that commits late is missed by no statement, and breaks no page of one', async () => {
    const sku = await shop.product([1, 1]);
    const late = await shop.session();
    await late.query('begin');
    await late.query(`select restock($1, 'b1', 5, 'late', 'mia', 'late', null)`, [sku]);
    await restock(shop.db, { ...change(sku, 'b2'), quantity: 2 });
    const first = await statement({ sku, limit: 2 });
    expect(first.items.map(({ bin, binVersion }) => [bin, binVersion])).toEqual([
      ['b1', 1],
      ['b2', 1],
    ]);
    await late.query('commit');
    const second = await statement({ sku, limit: 2, cursor: first.nextCursor! });
    expect(second.opening).toEqual(first.closing);
    expect(second.closing).toEqual({ available: 4, held: 0, sold: 0 });
    const again = await walk({ sku, limit: 2 });
    expect(again.at(-1)!.closing).toEqual({ available: 9, held: 0, sold: 0 });
  });

  it('R31: newest first, each movement that was there when a walk began is shown once, though others commit meanwhile with lower ids and earlier times', async () => {
    const sku = await shop.product([1, 1, 1]);
    const late = await shop.session();
    await late.query('begin');
    await late.query(`select restock($1, 'b1', 5, 'late', 'mia', 'late', null)`, [sku]);
    for (let i = 0; i < 4; i += 1) await restock(shop.db, { ...change(sku, 'b2'), quantity: 1 });
    const there = (await readMovements(shop.db, { sku, limit: 100 })).items.map(({ id }) => id);
    const shown: Movement[] = [];
    let cursor: string | undefined;
    for (let pages = 0; pages === 0 || cursor !== undefined; pages += 1) {
      const page = await readMovements(shop.db, { sku, limit: 2, cursor });
      shown.push(...page.items);
      cursor = page.nextCursor ?? undefined;
      if (pages === 0) await late.query('commit');
      await restock(shop.db, { ...change(sku, 'b3'), quantity: 1 });
    }
    const ids = shown.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.filter((id) => there.includes(id))).toEqual(there);
    // Its place was not passed yet: it came late, and is shown.
    expect(shown.filter(({ reason }) => reason === 'late')).toHaveLength(1);
    // A bin's versions have no hole.
    for (const bin of ['b1', 'b2']) {
      const versions = shown.filter((one) => one.bin === bin).map((one) => one.binVersion);
      expect(versions).toEqual(versions.map((_, index) => versions.length - index));
    }
  });
});
