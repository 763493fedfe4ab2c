import type { Database } from './database.js';
import type { PaymentStatus, Settlement, SettlementReason } from './values.js';

export interface PaymentEvent {
  provider: string;
  paymentId: string;
  /** The provider's id of this delivery's event; null when the payment was signalled without one. */
  eventId: string | null;
  status: PaymentStatus;
  /** Exactly one of the two says what the money is for. */
  holdId: string | null;
  orderNumber: string | null;
  /** Whole minor units and an ISO 4217 code, upper case. */
  amountMinor: number;
  currency: string;
  /** The event as it arrived, kept for the operator. */
  payload: unknown;
}

export type RecordPaymentOutcome =
  | {
      outcome: 'RECORDED' | 'DUPLICATE';
      holdId: string;
      status: PaymentStatus;
      /** Null unless the payment succeeded. Decided once, under the hold's lock. */
      inTime: boolean | null;
      settlement: Settlement | null;
      settlementReason: SettlementReason | null;
    }
  | { outcome: 'UNMATCHED' }
  | { outcome: 'OTHER_HOLD' };

/**
 * Stores what a payment service reported, and decides whether the money came in time: the clock as
 * this call begins is before the hold's end, and the hold, under its lock, is still HELD.
 * A failure after a success changes nothing; a success after a failure counts from its own moment.
 * `UNMATCHED` is stored too, and matched when the event comes again and the hold exists (B09).
 * @param lockBudgetMs how long all lock waits together may take; the pool's own when left out
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), DATABASE_UNAVAILABLE
 */
export function recordPayment(
  db: Database,
  event: PaymentEvent,
  {
    lockBudgetMs = db.changes.lockBudgetMs,
    withinMs,
  }: { lockBudgetMs?: number; withinMs?: number } = {},
): Promise<RecordPaymentOutcome> {
  return db.changes.answer<RecordPaymentOutcome>(
    {
      name: 'record_payment',
      text: `select tahan.record_payment($1::text, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::bigint, $8::text, $9::json, $10::int) as answer`,
      values: [
        event.provider,
        event.paymentId,
        event.eventId,
        event.status,
        event.holdId,
        event.orderNumber,
        event.amountMinor,
        event.currency,
        JSON.stringify(event.payload ?? null),
        lockBudgetMs,
      ],
    },
    { withinMs },
  );
}
