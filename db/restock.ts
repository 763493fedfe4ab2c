import type { Database } from './database.js';
import { changeStock } from './stock.js';
import type { Patience, StockChange, StockOutcome } from './stock.js';

/**
 * Adds units that arrived to a bin's available ones, as a restock in the ledger (R37).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the bin), DATABASE_UNAVAILABLE
 */
export function restock(
  db: Database,
  change: StockChange & { quantity: number },
  patience: Patience = {},
): Promise<StockOutcome> {
  return changeStock(db, 'restock', change, [change.quantity], patience);
}
