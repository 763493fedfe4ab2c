import type { Database } from './database.js';
import type { HoldStatus, Line, PaymentRef } from './values.js';

export interface ReturnOfSale {
  holdId: string;
  /** Null: everything that was sold and has not come back yet. */
  lines: Line[] | null;
  reason: string;
  actor: string;
  requestId: string;
  /** Whether the units can be sold again; else they stay counted as sold. */
  restock: boolean;
  /** What goes back to the buyer, 0 for nothing; null: what the units cost. */
  refundMinor: number | null;
}

/** A refund that a return has asked for. */
export interface ReturnRefund extends PaymentRef {
  cause: string;
  amountMinor: number;
  currency: string;
}

/** Why a return sends no money: nothing was to go back, nothing is left of it, or the provider took it back before. */
export type NoRefund = 'NOT_ASKED' | 'NOTHING_LEFT' | 'TAKEN_BACK';

export type ReturnOutcome =
  | {
      outcome: 'RETURNED';
      lines: Line[];
      restock: boolean;
      refund: ReturnRefund | null;
      noRefund: NoRefund | null;
    }
  | { outcome: 'NOT_CONFIRMED'; status: HoldStatus }
  /** Everything that was sold has come back before. */
  | { outcome: 'ALREADY_RETURNED' }
  /** More than was sold and has not come back; `sold` is 0 for a product that was not. */
  | { outcome: 'INVALID_QUANTITY'; lines: { sku: string; requested: number; sold: number }[] }
  /** A part of a hold without a price: only the operator knows what it was worth. */
  | { outcome: 'REFUND_REQUIRED'; leftMinor: number; currency: string }
  /** More than is left of the payment. */
  | { outcome: 'REFUND_TOO_LARGE'; amountMinor: number; leftMinor: number; currency: string }
  /** The request id was used for another change of this hold (B19). */
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'REASON_REQUIRED' }
  | { outcome: 'MISSING' };

/**
 * Takes back units of a CONFIRMED hold, and makes the row of its refund in the same transaction (R09).
 * The refund is of the payment that confirmed the hold: the units' price in the order, or for a hold
 * without a price all that is left of the money when everything is back; never more than is left. A
 * repeat with the same request id changes nothing and answers what the first one answered; a refund
 * that the provider has refused is then asked for again. Refusals change nothing and are not kept.
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), STOCK_LOCK_TIMEOUT (a bin), DATABASE_UNAVAILABLE
 */
export function returnSale(
  db: Database,
  { holdId, lines, reason, actor, requestId, restock, refundMinor }: ReturnOfSale,
): Promise<ReturnOutcome> {
  return db.changes.answer<ReturnOutcome>({
    name: 'return_sale',
    text: `select tahan.return_sale($1::uuid, $2::jsonb, $3::text, $4::text, $5::text, $6::boolean, $7::bigint, $8::int) as answer`,
    values: [
      holdId,
      lines && JSON.stringify(lines),
      reason,
      actor,
      requestId,
      restock,
      refundMinor,
      db.changes.lockBudgetMs,
    ],
  });
}
