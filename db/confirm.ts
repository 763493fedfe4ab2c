import type { Database } from './database.js';
import type { PaymentRef, SettlementReason } from './values.js';

export type ConfirmOutcome =
  | { outcome: 'CONFIRMED'; late: boolean }
  | { outcome: 'ALREADY_CONFIRMED' }
  | { outcome: 'SURPLUS' }
  | { outcome: 'MISMATCH' }
  | {
      outcome: 'TOO_LATE';
      settlement: 'REFUND_DUE' | 'REFUNDED' | 'NEEDS_REVIEW';
      reason: SettlementReason;
    }
  | { outcome: 'PAYMENT_PENDING'; payment: PaymentRef }
  | { outcome: 'MISSING' };

/**
 * Moves a hold's units from held to sold for one recorded payment, decided under the hold's lock
 * (R05), and writes that payment's settlement in the same transaction, whatever the outcome.
 * Safe to repeat: a settled payment answers the same again (F27). `PAYMENT_PENDING` names an
 * in-time payment that must be confirmed first; `MISSING` means no such hold, or the payment was
 * not recorded as succeeded for it.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin), DATABASE_UNAVAILABLE
 */
export function confirm(
  db: Database,
  holdId: string,
  payment: PaymentRef,
): Promise<ConfirmOutcome> {
  return db.changes.answer<ConfirmOutcome>({
    name: 'confirm',
    text: `select tahan.confirm($1::uuid, $2::text, $3::text, $4::int) as answer`,
    values: [holdId, payment.provider, payment.paymentId, db.changes.lockBudgetMs],
  });
}
