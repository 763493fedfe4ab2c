import type { Database } from './database.js';
import type { HoldStatus, Line, PaymentRef } from './values.js';

export interface Release {
  /** Lines of the same product are added up. */
  lines: Line[];
  reason: string;
  actor: string;
  requestId: string;
}

export type ReleaseOutcome =
  /** What is still held. CANCELLED: nothing is, and the hold is closed. */
  | { outcome: 'RELEASED'; status: 'HELD' | 'CANCELLED'; left: Line[] }
  /** More than is held; `held` is 0 for a product that is not in the hold. */
  | { outcome: 'INVALID_QUANTITY'; lines: { sku: string; requested: number; held: number }[] }
  | { outcome: 'ALREADY'; status: HoldStatus }
  /** The end has passed, whether or not the expiry has run. */
  | { outcome: 'EXPIRED' }
  | { outcome: 'PAYMENT_PENDING'; payment: PaymentRef }
  /** The request id was used for another change of this hold (B19). */
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'REASON_REQUIRED' }
  | { outcome: 'MISSING' };

/**
 * Gives some lines or some units of a HELD hold back to exactly the bins they came from, of several
 * bins the last allocated first; what is left stays held until the same end (B13). An order's total
 * follows. A repeat with the same request id changes nothing and answers what the first one answered;
 * refusals change nothing and are not kept.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin), DATABASE_UNAVAILABLE
 */
export function release(
  db: Database,
  holdId: string,
  { lines, reason, actor, requestId }: Release,
): Promise<ReleaseOutcome> {
  return db.changes.answer<ReleaseOutcome>({
    name: 'release',
    text: `select tahan.release($1::uuid, $2::jsonb, $3::text, $4::text, $5::text, $6::int) as answer`,
    values: [holdId, JSON.stringify(lines), reason, actor, requestId, db.changes.lockBudgetMs],
  });
}
