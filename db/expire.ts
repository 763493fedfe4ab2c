import type { Database } from './database.js';
import type { HoldStatus, PaymentRef } from './values.js';

export type ExpireOutcome =
  | { outcome: 'EXPIRED' }
  | { outcome: 'ALREADY'; status: HoldStatus }
  | { outcome: 'NOT_DUE'; remainingMs: number }
  | { outcome: 'PAYMENT_PENDING'; payment: PaymentRef }
  | { outcome: 'MISSING' };

/**
 * Gives an overdue unpaid hold's units back to exactly the bins they came from, once (R06).
 * `NOT_DUE` says how long to wait by the database's clock, at least 1 ms (F12).
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin), DATABASE_UNAVAILABLE
 */
export function expire(db: Database, holdId: string): Promise<ExpireOutcome> {
  return db.changes.answer<ExpireOutcome>({
    name: 'expire',
    text: `select tahan.expire($1::uuid, $2::int) as answer`,
    values: [holdId, db.changes.lockBudgetMs],
  });
}
