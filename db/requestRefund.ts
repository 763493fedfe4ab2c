import type { Database } from './database.js';
import type { PaymentRef, Settlement } from './values.js';

export type RequestRefundOutcome =
  | { outcome: 'REQUESTED'; cause: 'settlement'; amountMinor: number; currency: string }
  /** The settlement asks for no refund, or no longer does. */
  | { outcome: 'NOT_DUE'; settlement: Settlement | null }
  | { outcome: 'MISSING' };

/**
 * Makes the row of what is to go back to the buyer of a payment that is REFUND_DUE, before any call.
 * Safe to repeat: one row per payment and cause for ever, with one key (F18).
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), DATABASE_UNAVAILABLE
 */
export function requestRefund(
  db: Database,
  { provider, paymentId }: PaymentRef,
): Promise<RequestRefundOutcome> {
  return db.changes.answer<RequestRefundOutcome>({
    name: 'request_refund',
    text: `select tahan.request_refund($1::text, $2::text, $3::int) as answer`,
    values: [provider, paymentId, db.changes.lockBudgetMs],
  });
}
