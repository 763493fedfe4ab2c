import type { Database } from './database.js';
import type { Patience, StockChange } from './stock.js';
import type { Counts } from './values.js';

interface MovedBin {
  bin: string;
  version: number;
  counts: Counts;
  safetyStock: number;
}

export type MoveOutcome =
  | { outcome: 'DONE'; from: MovedBin; to: MovedBin }
  | { outcome: 'INSUFFICIENT_STOCK'; available: number }
  /** Less than one, or the target would pass 2,000,000,000 units. */
  | { outcome: 'INVALID_QUANTITY' }
  | { outcome: 'SAME_BIN' }
  | { outcome: 'REASON_REQUIRED' }
  /** The request id was used for another change of the bin that the units leave. */
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'NOT_FOUND'; what: 'product' }
  | { outcome: 'NOT_FOUND'; what: 'bin'; bin: string };

/**
 * Moves available units from one bin of a product to another, never below zero: two
 * manual_adjustments with one request id, in one transaction (R37).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (one of the bins), DATABASE_UNAVAILABLE
 */
export function move(
  db: Database,
  change: StockChange & { to: string; quantity: number },
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience = {},
): Promise<MoveOutcome> {
  return db.changes.answer<MoveOutcome>(
    {
      name: 'move_stock',
      text: `select tahan.move_stock($1::text, $2::text, $3::text, $4::int, $5::text, $6::text, $7::text, $8::text, $9::int) as answer`,
      values: [
        change.sku,
        change.bin,
        change.to,
        change.quantity,
        change.reason,
        change.actor,
        change.requestId,
        change.reference,
        lockBudgetMs,
      ],
    },
    { withinMs },
  );
}
