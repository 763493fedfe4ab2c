import { randomBytes, randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox } from '../../cli/sandbox/sandbox.js';
import { openDatabase } from '../../db/database.js';
import { audit } from '../db/audit.js';
import { otherOnBins, whenWaiting } from '../db/rivals.js';
import { handleOf, until } from '../workflows/engine.js';
import { paymentOf } from './moneyBook.js';
import { openSystem } from './processes.js';
import type { System } from './processes.js';
import { atOnce, statuses } from './service.js';
import { openStream } from './streams.js';

let system: System;
/** With a book of its own. */
let provider: Sandbox;
const secret = `whsec_${randomBytes(32).toString('base64')}`;
/** How long a product was blocked by a client of the app that stopped in the middle of a transaction. */
let blockedForMs: Promise<number>;

beforeAll(async () => {
  provider = await startSandbox({
    secret,
    deliverTo: 'http://127.0.0.1:9',
    behaviour: { webhooks: { refunded: false } },
  });
  system = await openSystem(undefined, {
    TAHAN_REFUND_URL: provider.url,
    TAHAN_REFUND_SECRET: secret,
  });
  blockedForMs = idleInTransaction();
  blockedForMs.catch(() => {});
});
afterEach(async () => {
  for (const way of Object.values(system.to))
    await Promise.all([way.api.plug(), way.worker.plug()]);
  expect(await audit(system.shop.url)).toEqual({});
});
afterAll(async () => {
  await system.close();
  await provider.close();
});

/** A checkout whose claim waits in Postgres for a bin that somebody else has locked. */
async function waitingCheckout(settings: Record<string, unknown> = {}) {
  const sku = await system.product([5], settings);
  const [buyer, key] = ['patient', randomUUID()];
  const rival = await otherOnBins(system.shop, sku);
  const answer = system.attempt({ [sku]: 1 }, { buyer, key });
  answer.catch(() => {}); // the API may be killed before it answers
  await until('the worker’s claim waits', async () => {
    const waiting = await system.shop.query(
      `select from pg_stat_activity where datname = current_database()
         and application_name = 'tahan worker' and wait_event_type = 'Lock'`,
    );
    return waiting.length > 0;
  });
  return { sku, buyer, key, rival, answer, id: await system.holdIdOf(buyer, key) };
}

async function isHeld(id: string): Promise<void> {
  await until('it is committed', async () => {
    const rows = await system.shop.query('select status from tahan.holds where id = $1', [id]);
    return rows[0]?.['status'] === 'HELD';
  });
}

/** kill -9, as an out-of-memory killer does it. */
async function kill(role: 'api' | 'worker'): Promise<void> {
  const { child, exit } = system.processes[role];
  child.kill('SIGKILL');
  expect(await exit).toBe('SIGKILL');
}

it('B23 (b): the API is killed before its start of the workflow has left: nothing is held, and the key gets its unit from the next API', async () => {
  const sku = await system.product([5]);
  const [buyer, key] = ['patient', randomUUID()];
  system.to.temporal.api.lose('questions');
  const asked = system.attempt({ [sku]: 1 }, { buyer, key }).catch((error: unknown) => error);
  await until('it was sent, and lost', () => system.to.temporal.api.hasLost());
  await kill('api');
  expect(await asked).toBeInstanceOf(Error);
  await system.to.temporal.api.plug();
  await system.startApi();
  expect(await system.ledger(sku)).toEqual([]);
  expect((await system.checkout({ [sku]: 1 }, { buyer, key })).status).toBe(201);
  expect(await system.ledger(sku)).toEqual(['reserve 1 b1']);
});

it('B23 (c): the API is killed after its start and before its answer: the key finds one hold with one workflow, which ends on time', async () => {
  const { sku, buyer, key, rival, answer, id } = await waitingCheckout({ hold_seconds: 3 });
  await kill('api');
  await expect(answer).rejects.toThrow();
  await rival.rollback();
  await system.startApi();
  const again = await system.checkout<{ id: string }>({ [sku]: 1 }, { buyer, key });
  expect([again.status, again.body.id]).toEqual([200, id]);
  const { runId, status } = await handleOf(system.engine, id).describe();
  const ended = await system.becomes(id, 'EXPIRED');
  expect(Date.parse(ended.closed_at!) - Date.parse(ended.expires_at!)).toBeLessThan(4000);
  expect(await system.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  expect((await handleOf(system.engine, id).describe()).runId).toBe(runId);
  expect(['RUNNING', 'COMPLETED']).toContain(status.name);
});

it('F1, F43: the network dies under a claim, which is committed all the same: the buyer is told 201, and the repeat takes no second unit', async () => {
  const { sku, rival, answer, id } = await waitingCheckout();
  system.to.postgres.worker.lose();
  await rival.rollback();
  await isHeld(id);
  const { status, body, took } = await answer;
  expect([status, body.id]).toEqual([201, id]);
  expect(took).toBeLessThan(5000);
  await system.to.postgres.worker.plug();
  // The worker has found out as well: the workflow knows what it waits for.
  const cancelled = await system.post(`/v1/holds/${id}/cancel`, { reason: 'r' });
  expect(cancelled.status).toBe(200);
  expect(await system.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
});

it('F1: the worker is killed between the commit of a claim and its answer: the next one finds the hold, and ends it on time', async () => {
  const { sku, rival, id } = await waitingCheckout({ hold_seconds: 3 });
  system.to.postgres.worker.lose('answers');
  await rival.rollback();
  await isHeld(id);
  await kill('worker');
  await system.to.postgres.worker.plug();
  await system.startWorker();
  const readyAt = Date.now();
  const ended = await system.becomes(id, 'EXPIRED', 30_000);
  const due = Math.max(readyAt, Date.parse(ended.expires_at!));
  // A task was in flight: 12 s at most.
  expect(Date.parse(ended.closed_at!) - due).toBeLessThan(12_000);
  expect(await system.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
});

it('F44: a worker that is stopped (SIGSTOP) in the middle of a claim blocks nobody: the product sells on at once', async () => {
  const { sku, rival, answer, id } = await waitingCheckout();
  system.processes.worker.child.kill('SIGSTOP');
  try {
    await rival.rollback();
    await isHeld(id);
    const began = performance.now();
    expect((await system.shop.claim({ [sku]: 1 })).outcome).toBe('HELD');
    expect(performance.now() - began).toBeLessThan(6000);
    const { status, took } = await answer;
    expect(status).toBe(201);
    expect(took).toBeLessThan(5000);
  } finally {
    system.processes.worker.child.kill('SIGCONT');
  }
  expect((await system.post(`/v1/holds/${id}/cancel`, { reason: 'r' })).status).toBe(200);
});

it('F2: an attempt that is stuck for longer than its 8 s takes nothing when its lock comes free, nor does the next one; the key then gets the unit', async () => {
  const { sku, buyer, key, rival, answer, id } = await waitingCheckout();
  const began = performance.now();
  const { child } = system.processes.worker;
  child.kill('SIGSTOP');
  try {
    const { status, body } = await answer;
    expect([status, body.code]).toEqual([503, 'CHECKOUT_TIMED_OUT']);
    await until('nobody waits', async () => {
      const waiting = await system.shop.query(
        `select from pg_stat_activity where datname = current_database()
           and application_name = 'tahan worker' and state = 'active'`,
      );
      return waiting.length === 0;
    });
    await until('its time is over', () => performance.now() - began > 8_500);
  } finally {
    child.kill('SIGCONT');
  }
  const end: unknown = await handleOf(system.engine, id)
    .result()
    .catch((error: Error): unknown => error.cause);
  expect(end).toMatchObject({ type: 'CLAIM_TOO_LATE' });
  await rival.rollback();
  expect(await system.ledger(sku)).toEqual([]);
  expect((await system.checkout({ [sku]: 1 }, { buyer, key })).status).toBe(201);
});

it('F40: with all connections for reads busy, 40 reads are 503 in time, and the next ones work', async () => {
  const sku = await system.product([5]);
  const { id } = await system.hold({ [sku]: 1 });
  const rival = await system.shop.session();
  await rival.query('begin; lock table tahan.holds in access exclusive mode');
  const answers = await atOnce(40, () => system.get(`/v1/holds/${id}`));
  await rival.query('rollback');
  expect(statuses(answers)).toEqual({ 503: 40 });
  expect(Math.max(...answers.map(({ took }) => took))).toBeLessThan(5000);
  expect(statuses(await atOnce(40, () => system.get(`/v1/holds/${id}`)))).toEqual({ 200: 40 });
});

it('F44: a client of the app that stops in the middle of a transaction loses its locks after 10 s', async () => {
  const ms = await blockedForMs;
  expect(ms).toBeGreaterThan(9_000);
  expect(ms).toBeLessThan(16_000);
}, 60_000);

async function idleInTransaction(): Promise<number> {
  const sku = await system.shop.product([5]);
  const db = openDatabase({ url: system.shop.url, connections: { changes: 1 } });
  await db.changes.rows({ text: 'begin' });
  await db.changes.rows({
    text: 'select id from tahan.bins where sku = $1 for update',
    values: [sku],
  });
  const began = performance.now();
  for (;;) {
    const outcome = await system.shop.claim({ [sku]: 1 }).then(
      (claimed) => claimed.outcome,
      () => 'BUSY',
    );
    if (outcome === 'HELD') break;
  }
  await db.close();
  return performance.now() - began;
}

it('R12: a sale reaches a stream of another process within a second; the stream goes on when Postgres was away from it, and ends politely with its process', async () => {
  const sku = await system.product([5]);
  const one = await openStream(system.url(), system.shopKey, [sku]);
  await one.shows(sku, { available: 5 });
  await system.hold({ [sku]: 1 });
  expect(await one.shows(sku, { available: 4, held: 1 })).toBeLessThan(1000);

  await system.to.postgres.api.pull();
  await system.shop.hold({ [sku]: 2 });
  await system.to.postgres.api.plug();
  await one.shows(sku, { available: 2, held: 3 });
  await system.hold({ [sku]: 1 });
  await one.shows(sku, { available: 1, held: 4 });

  const { child, exit } = system.processes.api;
  const began = performance.now();
  child.kill('SIGTERM');
  expect(await one.ended).toBe('ended');
  expect(await exit).toBe(0);
  expect(performance.now() - began).toBeLessThan(3000);
  await system.startApi();
});

it('R09, F1: the worker is killed when a return is committed and nobody knows it: the units are back once, and the money is sent once', async () => {
  const sku = await system.product([5]);
  const { id } = await system.hold({ [sku]: 2 });
  const paymentId = randomUUID();
  await system.paid(id, { payment_id: paymentId });
  await system.becomes(id, 'CONFIRMED');
  const charge = { payment_id: paymentId, hold_id: id, order_number: null, currency: 'EUR' };
  const paid = { amount_minor: 1000, status: 'succeeded' as const };
  const created_at = new Date().toISOString();
  provider.book.record({ kind: 'charge', charge: { ...charge, ...paid, created_at } });

  const rival = await system.shop.session();
  await rival.query('begin');
  await rival.query('select from tahan.holds where id = $1 for no key update', [id]);
  const body = { reason: 'does not fit', restock: true };
  const sent = { key: system.operatorKey, idempotencyKey: 'killed' };
  const asked = system.post(`/v1/holds/${id}/return`, body, sent);
  await whenWaiting(system.shop, 'tahan.return_sale');
  system.to.temporal.worker.lose('questions');
  await rival.query('rollback');
  await until('it is committed', async () => {
    const rows = await system.shop.query(
      `select from tahan.refunds where payment_id = $1 and state = 'REQUESTED'`,
      [paymentId],
    );
    return rows.length === 1;
  });
  await kill('worker');
  expect(provider.book.refundsOf(paymentId)).toEqual([]);
  await system.to.temporal.worker.plug();
  await system.startWorker();
  await until(
    'the money is back',
    async () => (await paymentOf(system, paymentId)).refunds[0]!.state === 'EXECUTED',
    30_000,
  );
  expect(provider.book.refundsOf(paymentId).map((one) => one.amount_minor)).toEqual([1000]);
  expect([200, 503]).toContain((await asked).status);
  const again = await system.post(`/v1/holds/${id}/return`, body, sent);
  expect([again.status, again.text]).toEqual([200, expect.stringContaining('"amount_minor":1000')]);
  expect(await system.counts(sku)).toEqual({ available: 5, held: 0, sold: 0 });
  expect(provider.book.refundsOf(paymentId)).toHaveLength(1);
}, 60_000);
