import type { Database } from './database.js';
import type { HoldStatus, PaymentRef, Settlement } from './values.js';

export interface PaymentDecision {
  decision: 'accept' | 'refund';
  reason: string;
  actor: string;
  requestId: string;
}

export type DecidePaymentOutcome =
  | { outcome: 'ACCEPTED_LATE' }
  | { outcome: 'REFUND_DUE' }
  /** The provider had sent the money back before: nothing is left to refund. */
  | { outcome: 'REFUNDED' }
  /** These leave the payment in review: another decision is possible. */
  | { outcome: 'INSUFFICIENT_STOCK' }
  | { outcome: 'BUYER_LIMIT'; sku: string }
  | { outcome: 'MISMATCH' }
  | { outcome: 'HOLD_CLOSED'; status: HoldStatus }
  | { outcome: 'PAYMENT_PENDING'; payment: PaymentRef }
  /** It is not in review. */
  | { outcome: 'ALREADY'; settlement: Settlement | null }
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'REASON_REQUIRED' }
  | { outcome: 'MISSING' };

/**
 * An operator's answer to a payment that NEEDS_REVIEW. Accepting confirms the hold, an EXPIRED one by
 * claiming its units again. Safe to repeat with its request id.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin or the buyer), DATABASE_UNAVAILABLE
 */
export function decidePayment(
  db: Database,
  { provider, paymentId }: PaymentRef,
  { decision, reason, actor, requestId }: PaymentDecision,
): Promise<DecidePaymentOutcome> {
  return db.changes.answer<DecidePaymentOutcome>({
    name: 'decide_payment',
    text: `select tahan.decide_payment($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int) as answer`,
    values: [provider, paymentId, decision, reason, actor, requestId, db.changes.lockBudgetMs],
  });
}
