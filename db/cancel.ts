import type { Database } from './database.js';
import type { HoldStatus, PaymentRef } from './values.js';

export type CancelOutcome =
  | { outcome: 'CANCELLED' }
  | { outcome: 'ALREADY'; status: HoldStatus }
  | { outcome: 'PAYMENT_PENDING'; payment: PaymentRef }
  | { outcome: 'MISSING' };

/**
 * Closes a HELD hold and gives its units back, with the reason and the actor in the ledger (R09, R35).
 * A CONFIRMED hold answers `ALREADY`: giving that back is a return.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin), DATABASE_UNAVAILABLE
 */
export function cancel(
  db: Database,
  holdId: string,
  reason: string,
  actor: string,
): Promise<CancelOutcome> {
  return db.changes.answer<CancelOutcome>({
    name: 'cancel',
    text: `select tahan.cancel($1::uuid, $2::text, $3::text, $4::int) as answer`,
    values: [holdId, reason, actor, db.changes.lockBudgetMs],
  });
}
