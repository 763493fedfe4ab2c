import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { putBuyerRules } from '../../db/buyerRules.js';
import { claim } from '../../db/claim.js';
import type { ClaimRequest } from '../../db/claim.js';
import { claimBatch } from '../../db/claimBatch.js';
import type { BatchedOutcome } from '../../db/claimBatch.js';
import { conflicts, openDatabase } from '../../db/database.js';
import { describeEachPostgres } from '../setup/database.js';
import { everything } from './books.js';
import { claimCall, other, otherOnBins } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('claims in one batch', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 8 } });
  const names = (answers: BatchedOutcome[]) => answers.map(({ outcome }) => outcome);
  const requests = (sku: string, quantities: number[], rest: Partial<ClaimRequest> = {}) =>
    Promise.all(quantities.map((quantity) => shop.request({ [sku]: quantity }, rest)));
  const shape = (answer: object) => ({ ...answer, holdId: 0, expiresAt: 0, remainingMs: 0 });

  it('R03, R14: grants what fits, first come first served, each whole or not at all; the others hear what is left', async () => {
    const sku = await shop.product([4, 3]);
    const answers = await claimBatch(shop.db, await requests(sku, [1, 5, 3, 2, 1, 1]));
    expect(names(answers)).toEqual([
      'HELD',
      'HELD',
      'INSUFFICIENT_STOCK',
      'INSUFFICIENT_STOCK',
      'HELD',
      'INSUFFICIENT_STOCK',
    ]);
    expect(answers[3]).toMatchObject({ shortfalls: [{ sku, requested: 2, available: 1 }] });
    expect(answers[5]).toMatchObject({ shortfalls: [{ sku, requested: 1, available: 0 }] });
  });

  it('R14: says and writes what the same claims say and write one after the other', async () => {
    const of = { priceMinor: 250, currency: 'EUR', holdSeconds: 90 };
    const twins = [
      await shop.product([3, 2, 4], { ...of, safetyStock: [0, 1] }),
      await shop.product([3, 2, 4], { ...of, safetyStock: [0, 1] }),
    ];
    const quantities = [2, 3, 9, 1, 2, 1, 1];
    const [together, alone] = await Promise.all(
      twins.map((sku) => requests(sku, quantities, { order: true, metadata: { from: 'shop' } })),
    );
    const batched = await claimBatch(shop.db, together!);
    const single = [];
    for (const request of alone!) single.push(await claim(shop.db, request));
    const named = (answers: object[]) =>
      answers.map((answer) => JSON.stringify(shape(answer)).replaceAll(twins[0]!, twins[1]!));
    expect(named(batched)).toEqual(named(single));

    const written = (sku: string, ids: string[]) =>
      shop.query(
        `select array_position($2::uuid[], h.id) as i, h.status, h.reason, h.late_payment, h.metadata,
           h.expires_at - h.created_at as lasts, o.currency, o.total_minor,
           (select jsonb_agg(jsonb_build_array(l.quantity, l.unit_price_minor, l.open_until = h.expires_at))
            from tahan.hold_lines l where l.hold_id = h.id) as lines,
           (select jsonb_agg(jsonb_build_array(b.code, a.quantity) order by b.id)
            from tahan.allocations a join tahan.bins b on b.id = a.bin_id where a.hold_id = h.id) as units,
           (select jsonb_agg(jsonb_build_array(b.code, m.bin_version, m.type, m.quantity, m.to_available, m.to_held,
              m.reason, m.actor = 'buyer ' || h.buyer_id) order by b.id)
            from tahan.movements m join tahan.bins b on b.id = m.bin_id where m.hold_id = h.id and m.sku = $1) as ledger
         from tahan.holds h left join tahan.orders o on o.hold_id = h.id where h.id = any ($2) order by 1`,
        [sku, ids],
      );
    const ids = (list: ClaimRequest[]) => list.map(({ holdId }) => holdId);
    const rows = await written(twins[0]!, ids(together!));
    expect(rows).toHaveLength(quantities.length);
    expect(rows).toEqual(await written(twins[1]!, ids(alone!)));
  });

  it('R14, R08: what is not plain is left for claim and nothing is done for it; the others are decided', async () => {
    const sku = await shop.product([20]);
    const off = await shop.product([20], { active: false });
    const spread = await shop.product([20, 20], { allocation: 'spread' });
    const limited = await shop.product([20], { perBuyerLimit: 2 });
    const known = await shop.request({ [sku]: 1 });
    await claim(shop.db, known);
    const taken = await shop.hold({ [sku]: 1 });
    const busy = await shop.request({ [sku]: 1 });
    const rivals = [
      await other(shop, ...claimCall(busy)),
      await other(shop, `select pg_advisory_xact_lock(tahan.buyer_lock('busy'))`),
    ];
    await rivals[0]!.rollback();
    rivals[0] = await other(shop, `select pg_advisory_xact_lock(tahan.key_lock($1))`, [
      busy.holdId,
    ]);
    const twice = await shop.request({ [sku]: 1 });
    const plain = await shop.request({ [sku]: 1 });
    const one = { [limited]: 1 };
    const alone = [
      known,
      busy,
      twice,
      {
        ...plain,
        holdId: randomUUID(),
        buyerId: known.buyerId,
        idempotencyKey: known.idempotencyKey,
      },
      await shop.request({ [sku]: 1 }, { holdId: taken }),
      await shop.request({ [sku]: 1, [spread]: 1 }),
      await shop.request({ [off]: 1 }),
      await shop.request({ nowhere: 1 }),
      await shop.request({ [spread]: 2 }),
      await shop.request({ [sku]: -5 }),
      await shop.request({ [sku]: 0 }),
      await shop.request({ [sku]: 10_001 }),
      await shop.request({ [sku]: 1 }, { holdSeconds: 1_000_000 }),
      await shop.request({ [limited]: 3 }),
      await shop.request(one, { buyerId: 'ann' }),
      await shop.request(one, { buyerId: 'busy' }),
    ];
    const decided = [
      twice,
      plain,
      await shop.request(one, { buyerId: 'ann' }),
      await shop.request({ [spread]: 1 }),
    ];
    const answers = await claimBatch(shop.db, [...decided, ...alone]);
    expect(names(answers)).toEqual([...decided.map(() => 'HELD'), ...alone.map(() => 'ALONE')]);
    const rows = await shop.query<{ id: string }>(`select id from tahan.holds`);
    const ids = new Set(rows.map(({ id }) => id));
    expect(alone.filter(({ holdId }) => ids.has(holdId)).map(({ holdId }) => holdId)).toEqual([
      known.holdId,
      twice.holdId,
      taken,
    ]);
    for (const rival of rivals) await rival.rollback();
    // The same ones, asked again alone, are decided by claim: nothing of the batch stands in their way.
    expect((await claim(shop.db, busy)).outcome).toBe('HELD');
    expect(await claim(shop.db, twice)).toMatchObject({ outcome: 'ALREADY', status: 'HELD' });
  });

  it('R10, S11: while a rule about buyers is on, every claim is left for claim, which looks at it', async () => {
    const sku = await shop.product([20]);
    const by = { actor: 'op', reason: 'scalpers' };
    await putBuyerRules(shop.db, { maxOpenHolds: 1 }, by);
    const asked = await requests(sku, [1, 1], { buyerId: 'many' });
    expect(names(await claimBatch(shop.db, asked))).toEqual(['ALONE', 'ALONE']);
    await putBuyerRules(shop.db, { maxOpenHolds: null }, by);
    expect(names(await claimBatch(shop.db, asked))).toEqual(['HELD', 'HELD']);
  });

  it('R07: units of overdue holds are left for the claim that takes them back, and no batch says sold out meanwhile', async () => {
    const sku = await shop.product([2]);
    await shop.hold({ [sku]: 2 }, { holdSeconds: 1 });
    await shop.shiftClock(2_000);
    const asked = await requests(sku, [1, 1, 1]);
    expect(names(await claimBatch(shop.db, asked))).toEqual(['ALONE', 'ALONE', 'ALONE']);
    const outcomes = [];
    for (const request of asked) outcomes.push((await claim(shop.db, request)).outcome);
    expect(outcomes).toEqual(['HELD', 'HELD', 'INSUFFICIENT_STOCK']);
  });

  it('F8: a claim whose deadline has passed when the bins are locked takes nothing and leaves no row; its neighbours are served', async () => {
    const sku = await shop.product([9]);
    const late = await shop.request({ [sku]: 1 }, { claimDeadline: await shop.now(-1) });
    const answers = await claimBatch(shop.db, [late, await shop.request({ [sku]: 1 })]);
    expect(names(answers)).toEqual(['CLAIM_TOO_LATE', 'HELD']);
    expect(await shop.query(`select from tahan.holds where id = $1`, [late.holdId])).toEqual([]);
  });

  it('R25, R26: a bin that somebody keeps ends the batch with STOCK_LOCK_TIMEOUT and nothing has changed', async () => {
    const sku = await shop.product([9]);
    const asked = await requests(sku, [1, 1]);
    const rival = await otherOnBins(shop, sku);
    const before = await everything(shop);
    const impatient = openDatabase({ url: shop.url, takeAppRole: true, stockLockTimeoutMs: 150 });
    await expect(claimBatch(impatient, asked)).rejects.toMatchObject({
      code: 'STOCK_LOCK_TIMEOUT',
    });
    await impatient.close();
    expect(await everything(shop)).toEqual(before);
    await rival.rollback();
    expect(names(await claimBatch(shop.db, asked))).toEqual(['HELD', 'HELD']);
  });

  it('R14, R23, B01: batches, single claims and adjustments at once over two products: every unit is given once, none is refused while one is free, nothing deadlocks', async () => {
    const [a, b] = [
      await shop.product([40, 30]),
      await shop.product([25], { allocation: 'spread' }),
    ];
    const before = conflicts.repeated;
    const outcomes: string[] = [];
    const rounds = Array.from({ length: 8 }, async (_, lane) => {
      for (let round = 0; round < 4; round += 1) {
        const [first, second] = lane % 2 === 0 ? [a, b] : [b, a];
        const asked = await Promise.all(
          Array.from({ length: 10 }, (_, i) => shop.request({ [i % 2 === 0 ? first : second]: 1 })),
        );
        outcomes.push(...names(await claimBatch(shop.db, asked)));
        outcomes.push((await shop.claim({ [a]: 1, [b]: 1 })).outcome);
        const change = { sku: a, bin: 'b1', reason: 'count', actor: 'op', reference: null };
        await adjust(shop.db, { ...change, delta: 1, requestId: randomUUID() });
      }
    });
    await Promise.all(rounds);
    expect(new Set(outcomes)).toEqual(new Set(['HELD', 'INSUFFICIENT_STOCK']));
    const left = await shop.query<{ sku: string; available: number; held: number }>(
      `select sku, sum(available)::int as available, sum(held)::int as held from tahan.bins where sku = any ($1) group by 1`,
      [[a, b]],
    );
    // 95 units and 32 that came meanwhile, for 352 that were asked for.
    expect(left.find(({ sku }) => sku === b)).toMatchObject({ available: 0, held: 25 });
    expect(left.find(({ sku }) => sku === a)!.held).toBeGreaterThan(70);
    expect(conflicts.repeated).toBe(before);
  });
});
