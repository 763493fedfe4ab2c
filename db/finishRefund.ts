import type { Database } from './database.js';
import type { PaymentRef, RefundState } from './values.js';

/** What the provider answered for good. */
export type RefundEnd =
  { state: 'EXECUTED'; providerRef: string } | { state: 'REFUSED'; detail: string };

export type FinishRefundOutcome =
  | { outcome: 'DONE'; state: RefundEnd['state'] }
  /** It was over before: this answer comes too late to count. */
  | { outcome: 'ALREADY'; state: RefundState }
  | { outcome: 'MISSING' };

/**
 * Keeps what the provider said: EXECUTED makes the payment REFUNDED, REFUSED makes it NEEDS_REVIEW.
 * Safe to repeat.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), DATABASE_UNAVAILABLE
 */
export function finishRefund(
  db: Database,
  { provider, paymentId }: PaymentRef,
  cause: string,
  end: RefundEnd,
): Promise<FinishRefundOutcome> {
  const [providerRef, detail] =
    end.state === 'EXECUTED' ? [end.providerRef, null] : [null, end.detail];
  return db.changes.answer<FinishRefundOutcome>({
    name: 'finish_refund',
    text: `select tahan.finish_refund($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int) as answer`,
    values: [provider, paymentId, cause, end.state, providerRef, detail, db.changes.lockBudgetMs],
  });
}
