import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { conflicts } from '../../db/database.js';
import { importStock } from '../../db/importStock.js';
import type { ImportOutcome, ImportRow } from '../../db/importStock.js';
import { move } from '../../db/move.js';
import { readChanges } from '../../db/readChanges.js';
import { readMovements } from '../../db/readMovements.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, everything, ledger, tally } from './books.js';
import { atOnce, faultOf, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

type Imported = Exclude<ImportOutcome, { outcome: 'KEY_REUSED' }>;

describeEachPostgres('the import of stock', (version) => {
  const shop = sharedShop(version, { connections: { changes: 10 } });

  const row = (sku: string, rest: Partial<ImportRow> = {}): ImportRow => ({
    sku,
    bin: 'b1',
    action: 'restock',
    quantity: 5,
    reason: 'truck',
    ...rest,
  });
  const run = async (
    rows: ImportRow[],
    how: { dryRun?: boolean; allOrNothing?: boolean; requestId?: string } = {},
  ) =>
    (await importStock(shop.db, rows, {
      dryRun: false,
      allOrNothing: false,
      actor: 'mia',
      requestId: randomUUID(),
      ...how,
    })) as Imported;
  const outcomes = ({ results }: Imported) => results.map(({ outcome }) => outcome);

  /** Ten thousand bins of a thousand products, and a row for each of them, not in their order. */
  async function manyBins(): Promise<{ name: string; rows: ImportRow[] }> {
    const name = `M${randomUUID().slice(0, 6)}`;
    await shop.query(
      `insert into tahan.products (sku) select $1 || '-' || i from generate_series(0, 999) i`,
      [name],
    );
    await shop.query(
      `insert into tahan.bins (sku, code) select $1 || '-' || i % 1000, 'b' || i / 1000
       from generate_series(0, 9999) i`,
      [name],
    );
    const rows = Array.from({ length: 10_000 }, (_, at) => {
      const i = (at * 7919) % 10_000;
      return row(`${name}-${i % 1000}`, { bin: `b${Math.floor(i / 1000)}`, reference: 'D-1' });
    });
    return { name, rows };
  }

  it('R37: rows for one bin are applied in the order of the file, each on what the one before left, as movements in one chain', async () => {
    const sku = await shop.product([10, 0], { safetyStock: [1] });
    await shop.hold({ [sku]: 4 });
    const rows = [
      row(sku, { quantity: 5, reference: 'D-7' }),
      row(sku, { action: 'adjust', quantity: -12 }),
      row(sku, { action: 'adjust', quantity: -11, reason: 'broken' }),
      row(sku, { bin: 'b2', action: 'adjust', quantity: 3 }),
      row(sku, { action: 'count', quantity: 9, expected: 4 }),
      row(sku, { action: 'safety_stock', quantity: 7, reason: 'peak' }),
      row(sku, { action: 'count', quantity: 9, expected: 9 }),
      row(sku, { action: 'safety_stock', quantity: 7 }),
      row(sku, { action: 'count', quantity: 3, expected: 9 }),
    ];
    const answer = await run(rows);
    expect(
      answer.results.map(({ outcome, counts, safetyStock, version }) => [
        [outcome, counts!.available, counts!.held],
        [safetyStock, version],
      ]),
    ).toEqual([
      [
        ['DONE', 11, 4],
        [1, 3],
      ],
      [
        ['INSUFFICIENT_STOCK', 11, 4],
        [1, 3],
      ],
      [
        ['DONE', 0, 4],
        [1, 4],
      ],
      [
        ['DONE', 3, 0],
        [0, 1],
      ],
      [
        ['DONE', 5, 4],
        [1, 5],
      ],
      [
        ['DONE', 5, 4],
        [7, 5],
      ],
      [
        ['DONE', 5, 4],
        [7, 5],
      ],
      [
        ['DONE', 5, 4],
        [7, 5],
      ],
      [
        ['INSUFFICIENT_STOCK', 5, 4],
        [7, 5],
      ],
    ]);
    expect(answer).toMatchObject({ outcome: 'DONE', refused: 2 });
    expect(await bins(shop, sku)).toEqual([
      [5, 4, 0],
      [3, 0, 0],
    ]);
    const { items } = await readMovements(shop.db, { sku, limit: 100 });
    const ofFirst = items.filter(({ bin, reason }) => bin === 'b1' && reason !== 'opening');
    expect(
      ofFirst
        .reverse()
        .map(({ type, quantity, binVersion, from, to, metadata }) => [
          `${type} ${quantity}`,
          [binVersion, from.available, to.available],
          metadata,
        ]),
    ).toEqual([
      ['reserve 4', [2, 10, 6], {}],
      ['restock 5', [3, 6, 11], { reference: 'D-7' }],
      ['manual_adjustment 11', [4, 11, 0], {}],
      ['manual_adjustment 5', [5, 0, 5], {}],
    ]);
    expect(ofFirst[2]).toMatchObject({ reason: 'broken', actor: 'mia' });
    const changes = await readChanges(shop.db, { sku, limit: 10 });
    expect(changes.items[0]).toMatchObject({
      bin: 'b1',
      before: { safetyStock: 1 },
      after: { safetyStock: 7 },
      reason: 'peak',
    });
    expect(changes.items).toHaveLength(4);
  });

  it('R37: refused rows are told one by one and change nothing, and the rest is applied', async () => {
    const [sku, full] = [await shop.product([10]), await shop.product([2_000_000_000])];
    await shop.hold({ [sku]: 4 });
    const none = { action: 'adjust' as const };
    const rows = [
      row(sku),
      row('none'),
      row(sku, { bin: 'none' }),
      row(full),
      row(sku, { ...none, quantity: -12 }),
      row(sku, { ...none, quantity: -2_000_000_000 }),
      row(sku, { action: 'count', quantity: 1, expected: 10 }),
      row(sku, { ...none, quantity: 0 }),
      row(sku, { quantity: 0 }),
      row(sku, { action: 'safety_stock', quantity: -1 }),
      row(sku, { action: 'count', quantity: -1, expected: 15 }),
      row(sku, { action: 'count', quantity: 1 }),
      row(sku, { reason: ' ' }),
      row(sku, { ...none, quantity: 1 }),
    ];
    expect(outcomes(await run(rows))).toEqual([
      'DONE',
      'PRODUCT_NOT_FOUND',
      'BIN_NOT_FOUND',
      'INVALID_QUANTITY',
      'INSUFFICIENT_STOCK',
      'INSUFFICIENT_STOCK',
      'STOCK_CHANGED',
      'INVALID_QUANTITY',
      'INVALID_QUANTITY',
      'INVALID_QUANTITY',
      'INVALID_QUANTITY',
      'INVALID_QUANTITY',
      'REASON_REQUIRED',
      'DONE',
    ]);
    expect(await bins(shop, sku)).toEqual([[12, 4, 0]]);
    expect(await bins(shop, full)).toEqual([[2_000_000_000, 0, 0]]);
    expect((await ledger(shop, { sku })).slice(1)).toEqual([
      'restock 5 b1',
      'manual_adjustment 1 b1',
    ]);
  });

  it('R37: with all or nothing one refused row in the middle leaves everything as it was, and its answer is kept', async () => {
    const sku = await shop.product([10, 10]);
    const before = await everything(shop);
    const changes = await readChanges(shop.db, { sku, limit: 50 });
    const rows = [
      row(sku),
      row(sku, { action: 'safety_stock', quantity: 3 }),
      row(sku, { bin: 'b2', action: 'adjust', quantity: -11 }),
      row(sku, { bin: 'b2' }),
    ];
    const how = { allOrNothing: true, requestId: randomUUID() };
    const answer = await run(rows, how);
    expect(answer).toMatchObject({ outcome: 'REFUSED', refused: 1 });
    expect(outcomes(answer)).toEqual(['DONE', 'DONE', 'INSUFFICIENT_STOCK', 'DONE']);
    expect(await everything(shop)).toEqual(before);
    expect(await readChanges(shop.db, { sku, limit: 50 })).toEqual(changes);
    expect(await run(rows, how)).toEqual({ ...answer, replayed: true });
    expect(await run(rows.toSpliced(2, 1), { allOrNothing: true })).toMatchObject({
      outcome: 'DONE',
    });
    expect(await bins(shop, sku)).toEqual([
      [15, 0, 0],
      [15, 0, 0],
    ]);
  });

  it('R37, A7: repeated with its key, also at once, an import is made once and answers the same; other rows or another mode under that key are KEY_REUSED', async () => {
    const sku = await shop.product([0]);
    const [requestId, rows] = [randomUUID(), [row(sku), row('none')]];
    const answers = await atOnce(5, () => run(rows, { requestId }));
    for (const answer of answers) delete answer.replayed;
    expect(answers).toEqual(Array(5).fill(answers[0]));
    expect(await bins(shop, sku)).toEqual([[5, 0, 0]]);
    expect(await run(rows, { requestId })).toEqual({ ...answers[0], replayed: true });
    for (const [other, how] of [
      [[row(sku, { quantity: 6 }), row('none')], {}],
      [rows.toReversed(), {}],
      [rows, { dryRun: true }],
      [rows, { allOrNothing: true }],
    ] as const) {
      expect(await run([...other], { ...how, requestId })).toEqual({ outcome: 'KEY_REUSED' });
    }
    // Rows that name nothing lock nothing: the key is what keeps two of them apart.
    const nothing = randomUUID();
    const twice = await atOnce(4, () => run([row('none')], { requestId: nothing }));
    expect(twice.filter(({ replayed }) => !replayed)).toHaveLength(1);
    expect(await bins(shop, sku)).toEqual([[5, 0, 0]]);
  });

  it('R37: 1,000 rows for one bin are one unbroken chain', async () => {
    const sku = await shop.product([1]);
    const rows = Array.from({ length: 1000 }, (_, at) =>
      row(sku, { action: 'adjust', quantity: at % 2 ? 3 : -1 }),
    );
    expect(await run(rows)).toMatchObject({ outcome: 'DONE', refused: 0 });
    expect(await bins(shop, sku)).toEqual([[1001, 0, 0]]);
  });

  it('R37: killed in the middle, an import has done nothing, and its repeat does all of it', async () => {
    const sku = await shop.product([1, 1, 1]);
    const before = await everything(shop);
    const stuck = await otherOnBins(shop, sku, 'b3');
    const [requestId, rows] = [randomUUID(), ['b1', 'b2', 'b3'].map((bin) => row(sku, { bin }))];
    const importing = faultOf(run(rows, { requestId }));
    await whenWaiting(shop, 'tahan.import_stock');
    await shop.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and state = 'active'
         and position('tahan.import_stock' in query) > 0 and pid <> pg_backend_pid()`,
    );
    expect(await importing).toBe('DATABASE_UNAVAILABLE');
    await stuck.rollback();
    expect(await everything(shop)).toEqual(before);
    expect(await run(rows, { requestId })).toMatchObject({ outcome: 'DONE', refused: 0 });
    expect((await bins(shop, sku)).map(([available]) => available)).toEqual([6, 6, 6]);
  });

  it('R37: killed after its last row and before its end, an import has done nothing', async () => {
    const sku = await shop.product([1]);
    const before = await everything(shop);
    const text = `select tahan.import_stock($1, false, false, 'mia', $2) as answer`;
    const requestId = randomUUID();
    const killed = await other<Imported>(shop, text, [JSON.stringify([row(sku)]), requestId]);
    expect(killed.answer.outcome).toBe('DONE');
    const { rows } = await killed.client.query<{ pid: number }>('select pg_backend_pid() as pid');
    await shop.query('select pg_terminate_backend($1)', [rows[0]!.pid]);
    const gone = 'select from pg_stat_activity where pid = $1';
    while ((await shop.query(gone, [rows[0]!.pid])).length > 0);
    expect(await everything(shop)).toEqual(before);
    expect(await run([row(sku)], { requestId })).toMatchObject({ outcome: 'DONE' });
    expect(await bins(shop, sku)).toEqual([[6, 0, 0]]);
  });

  it('R25: an import that waits for a bin too long is STOCK_LOCK_TIMEOUT and has changed nothing', async () => {
    const sku = await shop.product([1, 1]);
    const before = await everything(shop);
    const stuck = await otherOnBins(shop, sku, 'b2');
    const how = { dryRun: false, allOrNothing: false, actor: 'mia', requestId: randomUUID() };
    const rows = [row(sku), row(sku, { bin: 'b2' })];
    const waiting = importStock(shop.db, rows, how, { lockBudgetMs: 200 });
    expect(await faultOf(waiting)).toBe('STOCK_LOCK_TIMEOUT');
    await stuck.rollback();
    expect(await everything(shop)).toEqual(before);
  });

  it('R37, R23: imports over many bins, in any order, beside claims, cancels and moves lose no unit and never deadlock', async () => {
    const skus = [
      await shop.product([50, 50], { allocation: 'spread' }),
      await shop.product([50, 50]),
      await shop.product([50, 50]),
    ];
    const all = skus.flatMap((sku) => ['b1', 'b2'].map((bin) => ({ sku, bin })));
    const before = conflicts.repeated;
    const claimDeadline = await shop.now(60_000);
    const answers = await atOnce<{ outcome: string }>(60, async (index) => {
      const [sku, next] = [skus[index % 3]!, skus[(index + 1) % 3]!];
      switch (index % 4) {
        case 0: {
          const mixed = index % 8 ? all.toReversed() : all;
          return run(mixed.map(({ sku, bin }) => row(sku, { bin, quantity: 1 })));
        }
        case 1: {
          const change = { sku, bin: 'b2', reason: 'nearer', actor: 'mia', reference: null };
          return move(shop.db, { ...change, requestId: randomUUID(), to: 'b1', quantity: 1 });
        }
        default: {
          const claimed = await shop.claim({ [sku]: 1, [next]: 1 }, { claimDeadline });
          if (claimed.outcome !== 'HELD' || index % 4 === 2) return claimed;
          return cancel(shop.db, claimed.holdId, 'changed my mind', 'buyer');
        }
      }
    });
    expect(tally(answers)).toEqual({ DONE: 30, HELD: 15, CANCELLED: 15 });
    expect(conflicts.repeated - before).toBe(0);
    const there = (await Promise.all(skus.map((sku) => bins(shop, sku)))).flat();
    const units = there.reduce((sum, [available, held]) => sum + available + held, 0);
    expect(units).toBe(300 + 15 * 6);
  });

  // The last one: its ten thousand bins are audited after every test that follows.
  it('R37: 10,000 rows over 10,000 bins are one call; its dry run predicts each field of each result and changes nothing', async () => {
    const { name, rows } = await manyBins();
    for (let at = 0; at < rows.length; at += 1) {
      const kind = at % 10;
      if (kind === 1) Object.assign(rows[at]!, { action: 'count', quantity: 9, expected: 0 });
      if (kind === 2) Object.assign(rows[at]!, { action: 'count', quantity: 9, expected: 1 });
      if (kind === 3) Object.assign(rows[at]!, { action: 'adjust', quantity: -1 });
      if (kind === 4) Object.assign(rows[at]!, { action: 'safety_stock', quantity: at % 7 });
      // A second row for a bin that had one, and one for a bin that isn't there.
      if (kind === 5) Object.assign(rows[at]!, { sku: rows[at - 4]!.sku, bin: rows[at - 4]!.bin });
      if (kind === 6) Object.assign(rows[at]!, { bin: 'none' });
    }
    const everythingThere = () =>
      shop.query(
        `select sum(b.available), sum(b.safety_stock), sum(b.version), max(b.updated_at),
           (select count(*) from tahan.movements), (select count(*) from tahan.setting_changes)
         from tahan.bins b where b.sku like $1 || '-%'`,
        [name],
      );
    const before = await everythingThere();
    const predicted = await run(rows, { dryRun: true });
    expect(await everythingThere()).toEqual(before);
    const made = await run(rows);
    expect(made).toEqual(predicted);
    expect(tally(made.results)).toEqual({
      DONE: 7000,
      STOCK_CHANGED: 1000,
      INSUFFICIENT_STOCK: 1000,
      BIN_NOT_FOUND: 1000,
    });
    expect(await everythingThere()).not.toEqual(before);
    // What was answered is what is there: the last row of each bin.
    const there = new Map(
      (
        await shop.query<{ bin: string; available: number; version: string }>(
          `select sku || ' ' || code as bin, available, version from tahan.bins where sku like $1 || '-%'`,
          [name],
        )
      ).map((bin) => [bin.bin, [bin.available, Number(bin.version)]]),
    );
    const answered = new Map<string, unknown>();
    for (const [at, { sku, bin }] of rows.entries()) {
      const { counts, version } = made.results[at]!;
      if (counts !== null) answered.set(`${sku} ${bin}`, [counts.available, version]);
    }
    for (const [bin, left] of answered) expect([bin, there.get(bin)]).toEqual([bin, left]);
  });
});
