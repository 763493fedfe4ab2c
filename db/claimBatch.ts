import type { Database } from './database.js';
import type { Line } from './values.js';
import type { ClaimOutcome, ClaimRequest } from './claim.js';

/** What a batch says of one of its claims; `ALONE`: not decided, and nothing done: ask `claim`. */
export type BatchedOutcome =
  | Extract<ClaimOutcome, { outcome: 'HELD' | 'INSUFFICIENT_STOCK' | 'CLAIM_TOO_LATE' }>
  | { outcome: 'ALONE' };

type Answer = { outcome: BatchedOutcome['outcome'] };

/**
 * Decides claims together, in the order given, in one transaction: each is granted whole while units
 * are left (R14). Answers in the same order. Only plain ones are decided: see the function.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT, DATABASE_UNAVAILABLE; any other error is of one poisoned
 *   claim. Nothing has changed, or (DATABASE_UNAVAILABLE) `claim` finds the answer that was lost.
 */
export async function claimBatch(
  db: Database,
  requests: ClaimRequest[],
): Promise<BatchedOutcome[]> {
  const answers = await db.claims.answer<Answer[]>({
    name: 'claim_batch',
    text: `select tahan.claim_batch($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[],
      $8::timestamptz[], $9::boolean[], $10::jsonb, $11::int) as answer`,
    values: [
      requests.map((request) => request.holdId),
      requests.map((request) => request.buyerId),
      requests.map((request) => request.idempotencyKey),
      requests.map((request) => request.requestHash),
      requests.map((request) => onlyLine(request)?.sku ?? null),
      requests.map((request) => onlyLine(request)?.quantity ?? null),
      requests.map((request) => request.holdSeconds),
      requests.map((request) => request.claimDeadline),
      requests.map((request) => request.order),
      JSON.stringify(requests.map((request) => request.metadata)),
      db.claims.lockBudgetMs,
    ],
  });
  return answers.map((answer, index) =>
    answer.outcome === 'ALONE' || answer.outcome === 'CLAIM_TOO_LATE'
      ? answer
      : { ...answer, requestHash: requests[index]!.requestHash },
  ) as BatchedOutcome[];
}

function onlyLine({ lines }: ClaimRequest): Line | undefined {
  return lines?.length === 1 ? lines[0] : undefined;
}
