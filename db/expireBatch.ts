import type { Database } from './database.js';
import type { ExpireOutcome } from './expire.js';
import { patienceMs } from './patience.js';

/**
 * What a batch says of one of its holds; `ALONE`: not decided, and nothing done: ask `expire`. `BUSY`:
 * somebody keeps a bin of this hold, and nothing has changed.
 */
export type BatchedExpiry =
  | Exclude<ExpireOutcome, { outcome: 'PAYMENT_PENDING' | 'MISSING' }>
  | { outcome: 'ALONE' }
  | { outcome: 'BUSY' };

/**
 * Expires overdue unpaid holds together, in one transaction (F13). Answers in the same order. Only plain
 * ones are decided: see the function. It waits for no hold, and for bins at most `patienceMs` in all.
 * @throws DatabaseFault DATABASE_UNAVAILABLE; any other error is of one poisoned hold. Nothing has changed,
 *   or (DATABASE_UNAVAILABLE) a repeat finds the answer that was lost.
 */
export function expireBatch(db: Database, holdIds: string[]): Promise<BatchedExpiry[]> {
  return db.changes.answer<BatchedExpiry[]>({
    name: 'expire_batch',
    text: `select tahan.expire_batch($1::uuid[], $2::int) as answer`,
    values: [holdIds, patienceMs(db)],
  });
}
