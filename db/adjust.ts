import type { Database } from './database.js';
import { changeStock } from './stock.js';
import type { Patience, StockChange, StockOutcome } from './stock.js';

/**
 * Changes a bin's available units by `delta` (never below zero, and never what is held or sold),
 * as a manual_adjustment in the ledger (R37, B20).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the bin), DATABASE_UNAVAILABLE
 */
export function adjust(
  db: Database,
  change: StockChange & { delta: number },
  patience: Patience = {},
): Promise<StockOutcome> {
  return changeStock(db, 'adjust', change, [change.delta], patience);
}
