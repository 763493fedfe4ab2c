import type { Database } from './database.js';
import type { PaymentRef, RefundState } from './values.js';

export type BeginRefundOutcome =
  | {
      outcome: 'CALL';
      paymentId: string;
      holdId: string;
      amountMinor: number;
      currency: string;
      /** The provider's idempotency key, the same at every try for ever. */
      key: string;
      reason: string;
      /** An earlier call may have reached the provider: ask for its refund first. */
      calledBefore: boolean;
    }
  | { outcome: 'DONE'; state: RefundState }
  | { outcome: 'MISSING' };

/**
 * Marks a call to the provider before it is made, and says whether there is one to make: none when
 * the provider reported meanwhile that the money is back.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), DATABASE_UNAVAILABLE
 */
export function beginRefund(
  db: Database,
  { provider, paymentId }: PaymentRef,
  cause: string,
): Promise<BeginRefundOutcome> {
  return db.changes.answer<BeginRefundOutcome>({
    name: 'begin_refund',
    text: `select tahan.begin_refund($1::text, $2::text, $3::text, $4::int) as answer`,
    values: [provider, paymentId, cause, db.changes.lockBudgetMs],
  });
}
