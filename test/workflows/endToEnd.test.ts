import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createActivities } from '../../activities/index.js';
import { adopt } from '../../cli/adopt.js';
import type { ClaimRequest } from '../../db/claim.js';
import { readHold } from '../../db/readHold.js';
import { send, sendSettle } from '../../workflows/contract.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { endOf, engine, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { cancel, claimAgain, extend, pay, withinMs } from './talk.js';

let shop: Shop;
let temporal: Engine;

beforeAll(async () => {
  shop = await openShop(undefined, { stockLockTimeoutMs: 1000 });
  temporal = await engine(createActivities(shop.db));
  await temporal.start();
});
afterAll(async () => {
  await temporal.close();
  await shop.close();
});
afterEach(async () => {
  await shop.shiftClock(0);
  expect(temporal.problems.splice(0)).toEqual([]);
  expect(await audit(shop.url)).toEqual({});
});

async function requestFor(sku: string, rest: Partial<ClaimRequest> = {}): Promise<HoldRequest> {
  return { ...(await shop.request({ [sku]: 1 }, rest)), indexed: true };
}

/** Claims one unit of a product, through the workflow, and expects to get it. */
async function hold(sku: string, rest: Partial<ClaimRequest> = {}): Promise<HoldRequest> {
  const request = await requestFor(sku, rest);
  const sent = await claimAgain(temporal, request);
  expect(sent).toMatchObject({ outcome: 'ANSWERED', answer: { outcome: 'HELD' } });
  return request;
}

async function countsOf(sku: string) {
  const [bin] = await shop.query<{ available: number; held: number; sold: number }>(
    'select available, held, sold from tahan.bins where sku = $1',
    [sku],
  );
  return bin;
}

async function movementsOf({ holdId }: HoldRequest): Promise<string[]> {
  const rows = await shop.query<{ type: string }>(
    'select type from tahan.movements where hold_id = $1 order by bin_id, bin_version',
    [holdId],
  );
  return rows.map(({ type }) => type);
}

describe('a hold from claim to end, on Postgres and Temporal', () => {
  test('R51 R32 R05 paid: the unit moves from available to held to sold', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku);
    expect(await countsOf(sku)).toEqual({ available: 0, held: 1, sold: 0 });
    await pay(temporal, request);
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(await countsOf(sku)).toEqual({ available: 0, held: 0, sold: 1 });
    expect(await movementsOf(request)).toEqual(['reserve', 'confirm_sold']);
  });

  test('R51 R06 nobody pays: given back once, within 4 s of its end', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku, { holdSeconds: 1 });
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(await countsOf(sku)).toEqual({ available: 1, held: 0, sold: 0 });
    expect(await movementsOf(request)).toEqual(['reserve', 'release_reservation']);
    const { closedAt, expiresAt } = (await readHold(shop.db, request.holdId))!;
    const lateMs = Date.parse(closedAt!) - Date.parse(expiresAt!);
    expect(lateMs).toBeGreaterThanOrEqual(0);
    expect(lateMs).toBeLessThan(4000);
  });

  test('R09 R35 cancelled: given back with the reason and the actor; later messages find it ended', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku);
    expect(await cancel(temporal, request)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
    await endOf(temporal, request.holdId);
    expect(await cancel(temporal, request)).toEqual({ outcome: 'ENDED' });
    const given = await shop.query(
      `select reason, actor from tahan.movements where hold_id = $1 and type = 'release_reservation'`,
      [request.holdId],
    );
    expect(given).toEqual([{ reason: 'changed mind', actor: 'shop' }]);
  });

  test('R03 R24 R40 two buyers, one unit: one is held, the other refused with the true count, nothing written', async () => {
    const sku = await shop.product([1]);
    const requests = [await requestFor(sku), await requestFor(sku)];
    const sent = await Promise.all(requests.map((request) => claimAgain(temporal, request)));
    const outcomes = sent.map((one) => (one.outcome === 'ANSWERED' ? one.answer.outcome : ''));
    expect([...outcomes].sort()).toEqual(['HELD', 'INSUFFICIENT_STOCK']);
    const refused = requests[outcomes.indexOf('INSUFFICIENT_STOCK')]!;
    expect(await endOf(temporal, refused.holdId)).toMatchObject({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku, requested: 1, available: 0 }],
    });
    expect(await movementsOf(refused)).toEqual([]);
  });

  test('extended: the unit is kept until the new end, and then given back', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku, { holdSeconds: 2 });
    const extended = await extend(temporal, request, 1);
    expect(extended).toMatchObject({ answer: { outcome: 'EXTENDED', extensions: 1 } });
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    const { expiresAt, createdAt, closedAt } = (await readHold(shop.db, request.holdId))!;
    expect(Date.parse(expiresAt!) - Date.parse(createdAt)).toBeGreaterThanOrEqual(3000);
    expect(Date.parse(closedAt!)).toBeGreaterThanOrEqual(Date.parse(expiresAt!));
  });

  test('H2 a claim after its deadline takes nothing, and the same key gets the unit with a new one', async () => {
    const sku = await shop.product([1]);
    const request = await requestFor(sku, { claimDeadline: await shop.now(-1) });
    expect(await claimAgain(temporal, request)).toEqual({ outcome: 'TOO_LATE' });
    expect(await readHold(shop.db, request.holdId)).toBeNull();
    const again = { ...request, claimDeadline: await shop.now(3500) };
    expect(await claimAgain(temporal, again)).toMatchObject({ answer: { outcome: 'HELD' } });
    await cancel(temporal, request);
  });

  test('F8 no worker until the deadline is over: nobody gets a hold that he no longer waits for', async () => {
    const sku = await shop.product([1]);
    const request = await requestFor(sku, { claimDeadline: await shop.now(600) });
    await temporal.stop();
    const sent = await send(temporal.holds, request, { kind: 'claimed' }, { withinMs: 700 });
    expect(sent.outcome).toBe('NO_ANSWER');
    await temporal.start();
    await expect(endOf(temporal, request.holdId)).rejects.toMatchObject({
      cause: { type: 'CLAIM_TOO_LATE' },
    });
    expect(await countsOf(sku)).toEqual({ available: 1, held: 0, sold: 0 });
  });
});

describe('time and money', () => {
  test('F12 the clock of Postgres runs 800 ms behind the timer: it waits on, nothing is given back early', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku, { holdSeconds: 2 });
    await shop.shiftClock(-800);
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    const { closedAt, expiresAt } = (await readHold(shop.db, request.holdId))!;
    expect(Date.parse(closedAt!)).toBeGreaterThanOrEqual(Date.parse(expiresAt!));
  });

  test('R05 the webhook recorded the payment and its signal was lost: the deadline confirms it', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku, { holdSeconds: 2 });
    const { inTime } = (await shop.pay(request.holdId)) as { inTime: boolean };
    expect(inTime).toBe(true);
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(await countsOf(sku)).toEqual({ available: 0, held: 0, sold: 1 });
  });

  test('R11 F17 paid after the end: send says ENDED, and the payment is settled as REFUND_DUE', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku, { holdSeconds: 1 });
    await endOf(temporal, request.holdId);
    const paid = await shop.pay(request.holdId);
    const { provider, paymentId } = paid;
    expect(await pay(temporal, request, { provider, paymentId })).toEqual({ outcome: 'ENDED' });
    await sendSettle(temporal.holds, request.holdId, { provider, paymentId }, { withinMs });
    await until('settled', async () => {
      const { payments } = (await readHold(shop.db, request.holdId))!;
      return payments[0]?.settlement === 'REFUND_DUE';
    });
  });

  test('F25 two payments for one hold: one is applied, the other is to be refunded', async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku);
    await Promise.all([
      pay(temporal, request, { paymentId: `${request.holdId}-a` }),
      pay(temporal, request, { paymentId: `${request.holdId}-b` }),
    ]);
    expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    const { payments } = (await readHold(shop.db, request.holdId))!;
    const settlements = payments.map(({ settlement, settlementReason }) => [
      settlement,
      settlementReason,
    ]);
    expect(settlements.sort()).toEqual([
      ['APPLIED', null],
      ['REFUND_DUE', 'SURPLUS'],
    ]);
  });

  test('F23 a wrong amount for an order does not confirm it; the right one still does', async () => {
    const sku = await shop.product([1], { priceMinor: 2500, currency: 'EUR' });
    const request = await hold(sku, { order: true });
    await pay(temporal, request, { paymentId: `${request.holdId}-low`, amountMinor: 5 });
    await pay(temporal, request, { paymentId: `${request.holdId}-full`, amountMinor: 2500 });
    expect(await endOf(temporal, request.holdId)).toMatchObject({
      outcome: 'CONFIRMED',
      notes: [`payment fake/${request.holdId}-low: MISMATCH`],
    });
  });
});

describe('operators', () => {
  test("an activity that waits for someone else's lock shows the lock's code, and goes on when it is free", async () => {
    const sku = await shop.product([1]);
    const request = await hold(sku);
    const other = await shop.session();
    await other.query('begin');
    await other.query('select from tahan.holds where id = $1 for update', [request.holdId]);
    const cancelling = cancel(temporal, request);
    await until('the code is shown', async () => {
      const { raw } = await handleOf(temporal, request.holdId).describe();
      const failure = raw.pendingActivities?.[0]?.lastFailure;
      return failure?.applicationFailureInfo?.type === 'STOCK_LEDGER_BUSY';
    });
    await other.query('rollback');
    expect(await cancelling).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  });

  test('F5 adopt starts the workflow of every HELD row that has none, and is safe to run twice', async () => {
    const sku = await shop.product([4]);
    const requests = await Promise.all([hold(sku), hold(sku), hold(sku), hold(sku)]);
    for (const { holdId } of requests.slice(1)) await handleOf(temporal, holdId).terminate();
    const open = await openHolds();
    const once = { started: 3, running: open - 3, failed: 0 };
    expect(await adopt(shop.db, temporal.holds)).toEqual(once);
    expect(await adopt(shop.db, temporal.holds)).toEqual({ started: 0, running: open, failed: 0 });
    for (const request of requests) {
      await pay(temporal, request, { paymentId: request.holdId });
      expect(await endOf(temporal, request.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    }
    expect(await countsOf(sku)).toEqual({ available: 0, held: 0, sold: 4 });
  });

  test('F46 adopt also serves a HELD row whose workflow has completed, as after a restore', async () => {
    const sku = await shop.product([1]);
    const request = await requestFor(sku);
    // Its workflow finds no row and completes; then the row is there, as if a backup had brought it.
    const bare = { ...request, lines: [{ sku: 'no-such-product', quantity: 1 }] };
    expect(await claimAgain(temporal, bare)).toMatchObject({ answer: { outcome: 'NOT_FOUND' } });
    await endOf(temporal, request.holdId);
    await createClaim(request);
    const once = { started: 1, running: (await openHolds()) - 1, failed: 0 };
    expect(await adopt(shop.db, temporal.holds)).toEqual(once);
    expect(await cancel(temporal, request)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  });
});

async function openHolds(): Promise<number> {
  const [row] = await shop.query<{ open: number }>(
    `select count(*)::int as open from tahan.holds where status = 'HELD'`,
  );
  return row!.open;
}

async function createClaim(request: HoldRequest): Promise<void> {
  const { claim } = await import('../../db/claim.js');
  expect(await claim(shop.db, request)).toMatchObject({ outcome: 'HELD' });
}
