import type { QueryConfig } from 'pg';
import { expect, it, vi } from 'vitest';
import { claimTogether } from '../../activities/claimTogether.js';
import type { ClaimRequest } from '../../db/claim.js';
import { openDatabase } from '../../db/database.js';
import type { Database } from '../../db/database.js';
import { DatabaseFault } from '../../db/faults.js';
import { describeEachPostgres } from '../setup/database.js';
import { otherOnBins } from './rivals.js';
import { sharedShop } from './shop.js';

/** The names of the statements that reach Postgres, and a way to let one of them fail. */
function listening(db: Database, fail: (name: string) => Error | undefined = () => undefined) {
  const asked: string[] = [];
  const claims = {
    lockBudgetMs: db.claims.lockBudgetMs,
    answer: (query: QueryConfig) => {
      asked.push(query.name!);
      const error = fail(query.name!);
      return error === undefined ? db.claims.answer(query) : Promise.reject(error);
    },
  };
  return { asked, db: { ...db, claims } as unknown as Database };
}

describeEachPostgres('claims that meet in a worker', (version) => {
  const shop = sharedShop(version);
  const many = (sku: string, count: number, rest: Partial<ClaimRequest> = {}) =>
    Promise.all(Array.from({ length: count }, () => shop.request({ [sku]: 1 }, rest)));
  const names = (outcomes: { outcome: string }[]) => outcomes.map(({ outcome }) => outcome);

  it('R14: one alone goes at once and alone; what meets goes together, and each hears its own answer in the order it came', async () => {
    const sku = await shop.product([100]);
    const { asked, db } = listening(shop.db);
    const claim = claimTogether(db, 4);
    const [first, ...rest] = await many(sku, 111);
    const answers = await Promise.all([first!, ...rest].map((request) => claim(request)));
    expect(answers.filter(({ outcome }) => outcome === 'HELD')).toHaveLength(100);
    expect(answers.filter(({ outcome }) => outcome === 'INSUFFICIENT_STOCK')).toHaveLength(11);
    expect(answers.map((answer) => 'holdId' in answer && answer.holdId)).toEqual(
      [first!, ...rest].map(({ holdId }, index) =>
        answers[index]!.outcome === 'HELD' ? holdId : false,
      ),
    );
    // Two places were free for the first two; 109 waited, in two batches of 50 and one of 9.
    expect(asked).toEqual(['claim', 'claim', 'claim_batch', 'claim_batch', 'claim_batch']);
  });

  it('R14: what the batch leaves is asked alone: a repeated key, a limited buyer twice, lines of two products', async () => {
    const sku = await shop.product([100], { perBuyerLimit: 1 });
    const second = await shop.product([100]);
    const { asked, db } = listening(shop.db);
    const claim = claimTogether(db, 4);
    const twin = await shop.request({ [second]: 1 });
    const requests = [
      ...(await many(second, 2)),
      twin,
      twin,
      ...(await many(sku, 2, { buyerId: 'ann' })),
      await shop.request({ [sku]: 1, [second]: 1 }),
    ];
    const outcomes = names(await Promise.all(requests.map((request) => claim(request))));
    // Ann's two go at once, each alone: which of them is first is the buyer's lock's to say.
    expect(outcomes.splice(4, 2).sort()).toEqual(['BUYER_LIMIT', 'HELD']);
    expect(outcomes).toEqual(['HELD', 'HELD', 'HELD', 'ALREADY', 'HELD']);
    expect(asked.filter((name) => name === 'claim_batch')).toHaveLength(1);
  });

  it('R14: a poisoned claim fails alone, its neighbours are served', async () => {
    const sku = await shop.product([100]);
    const claim = claimTogether(shop.db, 4);
    const requests = await many(sku, 6);
    // Postgres refuses the whole statement: a buyer id that is too long for the table.
    requests[4] = { ...requests[4]!, buyerId: 'x'.repeat(201) };
    const settled = await Promise.allSettled(requests.map((request) => claim(request)));
    expect(settled.map(({ status }) => status)).toEqual([
      ...['fulfilled', 'fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'fulfilled'],
    ]);
  });

  it('R25: when Postgres is away or a bin is kept, each of them hears it, and none was asked twice', async () => {
    const sku = await shop.product([100]);
    const away = new DatabaseFault('DATABASE_UNAVAILABLE', 'away');
    const { asked, db } = listening(shop.db, (name) => (name === 'claim_batch' ? away : undefined));
    const claim = claimTogether(db, 4);
    const settled = await Promise.allSettled((await many(sku, 8)).map((request) => claim(request)));
    expect(settled.filter(({ status }) => status === 'rejected')).toHaveLength(6);
    expect(asked).toEqual(['claim', 'claim', 'claim_batch']);

    const impatient = openDatabase({ url: shop.url, takeAppRole: true, stockLockTimeoutMs: 150 });
    const rival = await otherOnBins(shop, sku);
    const impatiently = claimTogether(impatient, 4);
    const waiting = (await many(sku, 8)).map((request) => impatiently(request));
    const codes = (await Promise.allSettled(waiting)).map(
      (one) => one.status === 'rejected' && (one.reason as DatabaseFault).code,
    );
    expect(new Set(codes)).toEqual(new Set(['STOCK_LOCK_TIMEOUT']));
    await rival.rollback();
    await impatient.close();
  });

  it('R14, F35: a product whose bin somebody keeps takes two connections at most: the others are sold on, in turn', async () => {
    const kept = await shop.product([100]);
    const others = [await shop.product([100]), await shop.product([100])];
    const rival = await otherOnBins(shop, kept);
    const claim = claimTogether(shop.db, 4);
    const stuck = (await many(kept, 30)).map((request) => claim(request));
    const sold = await Promise.all(
      (await Promise.all(others.map((sku) => many(sku, 60))))
        .flat()
        .map((request) => claim(request)),
    );
    expect(new Set(names(sold))).toEqual(new Set(['HELD']));
    await rival.rollback();
    expect(new Set(names(await Promise.all(stuck)))).toEqual(new Set(['HELD']));
  });

  it('R33, F35: nothing is kept of products and carts whose claims are decided', async () => {
    const sku = await shop.product([100]);
    const set = vi.spyOn(Map.prototype, 'set');
    const claim = claimTogether(shop.db, 4);
    const carts = Array.from({ length: 5 }, (_, index) =>
      shop.request({}, { buyerId: `cart-${index}`, lines: null, order: true }),
    );
    const all = [...(await many(sku, 60)), ...(await Promise.all(carts))];
    await Promise.all(all.map((request) => claim(request)));
    const called = set.mock.calls.findIndex(([name]) => String(name).startsWith('{"cartOf"'));
    const lanes = set.mock.contexts[called] as Map<string, unknown>;
    set.mockRestore();
    await vi.waitFor(() => expect([...lanes.keys()]).toEqual([]));
  });
});
