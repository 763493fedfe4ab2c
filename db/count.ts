import type { Database } from './database.js';
import { changeStock } from './stock.js';
import type { Patience, StockChange, StockOutcome } from './stock.js';

/**
 * Sets what is physically in a bin, available and held, from `expected` to `counted`, as a
 * manual_adjustment of the difference in the ledger (R37, B20). Claims and expiries don't change that
 * sum; whatever does makes it STOCK_CHANGED. No difference is DONE without a movement.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the bin), DATABASE_UNAVAILABLE
 */
export function count(
  db: Database,
  change: StockChange & { counted: number; expected: number },
  patience: Patience = {},
): Promise<StockOutcome> {
  return changeStock(db, 'count_stock', change, [change.counted, change.expected], patience);
}
