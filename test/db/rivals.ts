import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import type { ClaimRequest } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { DatabaseFault } from '../../db/faults.js';
import type { Shop } from './shop.js';

/** Somebody else's open transaction, with the answer of the statement that it has run so far. */
export interface Other<T> {
  answer: T;
  client: pg.Client;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

/** Runs a statement on a real second connection and leaves its transaction open, locks and all. */
export async function other<T = unknown>(
  shop: Shop,
  text: string,
  values: unknown[] = [],
): Promise<Other<T>> {
  const client = await shop.session();
  await client.query('begin');
  const { rows } = await client.query<{ answer: T }>(text, values);
  const end = async (how: string) => {
    await client.query(how);
    await client.end();
  };
  return {
    answer: rows[0]?.answer as T,
    client,
    commit: () => end('commit'),
    rollback: () => end('rollback'),
  };
}

/** An in-time payment that is recorded on another connection and not committed yet. */
export function beingPaid(shop: Shop, holdId: string, paymentId: string = randomUUID()) {
  return other<{ inTime: boolean }>(
    shop,
    `select tahan.record_payment('test', $1, null, 'succeeded', $2, null, 1000, 'EUR', '{}') as answer`,
    [paymentId, holdId],
  );
}

/** Somebody else holds the rows of these bins of a product, all of them if none is named. */
export function otherOnBins(shop: Shop, sku: string, ...codes: string[]): Promise<Other<unknown>> {
  return other(
    shop,
    `select id from tahan.bins where sku = $1 and (cardinality($2::text[]) = 0 or code = any($2))
     order by id for no key update`,
    [sku, codes],
  );
}

/** The claim as a statement of its own, for a connection that is not the pool's. */
export function claimCall(request: ClaimRequest, budgetMs = 15_000): [string, unknown[]] {
  return [
    'select tahan.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as answer',
    [
      request.holdId,
      request.buyerId,
      request.idempotencyKey,
      request.requestHash,
      request.lines && JSON.stringify(request.lines),
      request.holdSeconds,
      request.claimDeadline,
      request.order,
      JSON.stringify(request.metadata),
      budgetMs,
    ],
  ];
}

/**
 * Resolves when so many statements of the given text wait for a lock: a fact, not a sleep. A wrong
 * form may not wait where the right one does: then when the given call has ended.
 */
export async function whenWaiting(
  shop: Shop,
  text: string,
  count = 1,
  unless?: Promise<unknown>,
): Promise<void> {
  let ended = false;
  const end = () => void (ended = true);
  unless?.then(end, end);
  while (!ended) {
    const [row] = await shop.query<{ waiting: number }>(
      `select count(*)::int as waiting from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and position($1 in query) > 0
         and pid <> pg_backend_pid()`,
      [text],
    );
    if (row!.waiting >= count) return;
    await pause(2);
  }
}

/** Resolves when a statement of the given text waits for this rival, or the given call has ended. */
export async function whenBehind(
  shop: Shop,
  rival: { client: pg.Client },
  text: string,
  unless: Promise<unknown>,
): Promise<void> {
  const { rows } = await rival.client.query<{ pid: number }>('select pg_backend_pid() as pid');
  let ended = false;
  const end = () => void (ended = true);
  unless.then(end, end);
  while (!ended) {
    const waiting = await shop.query(
      `select from pg_stat_activity where datname = current_database()
         and position($1 in query) > 0 and $2 = any (pg_blocking_pids(pid))`,
      [text, rows[0]!.pid],
    );
    if (waiting.length > 0) return;
    await pause(2);
  }
}

/** The code that a call failed with; a call that answered is told apart by its answer. */
export async function faultOf(call: Promise<unknown>): Promise<string> {
  try {
    return `answered ${JSON.stringify(await call)}`;
  } catch (error) {
    return error instanceof DatabaseFault ? error.code : String(error);
  }
}

/** One call of a function on a connection of its own. */
export async function call(
  client: pg.Client,
  text: string,
  values: unknown[] = [],
): Promise<{ outcome: string }> {
  const { rows } = await client.query<{ answer: { outcome: string } }>(text, values);
  return rows[0]!.answer;
}

/**
 * What a call came to, in one word: its outcome, or the SQLSTATE of its error. 'gave up' is any of
 * the lock codes: which one it must be is asked in locks.test.ts.
 */
export async function said(work: Promise<{ outcome: string }>): Promise<string> {
  try {
    return (await work).outcome;
  } catch (error) {
    const code = String((error as { code?: unknown }).code ?? error);
    return /^TH00[123]$|_(BUSY|TIMEOUT|PROGRESS)$/.test(code) ? 'gave up' : code;
  }
}

/** What was recorded of a payment: its outcome, whether it was in time, and what became of it. */
export async function recorded(work: Promise<object>): Promise<string> {
  const { outcome, inTime, settlement } = (await work) as Record<string, unknown>;
  return [outcome, { true: 'in time', false: 'late' }[String(inTime)], settlement]
    .filter(Boolean)
    .join(', ');
}

/** What the workflow does at the end of a hold: expire, and confirm what is pending. */
export async function endOf(shop: Shop, hold: string): Promise<string[]> {
  const steps: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    const answer = await expire(shop.db, hold);
    steps.push(answer.outcome);
    if (answer.outcome !== 'PAYMENT_PENDING') break;
    steps.push(await said(confirm(shop.db, hold, answer.payment)));
  }
  return steps;
}

/** The same thing so many times at once. */
export function atOnce<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}
