import type { Database } from './database.js';
import type { Patience } from './stock.js';

/** NOT_THERE: the cart has no such line, and needs none. */
export type RemoveCartLineOutcome = { outcome: 'REMOVED' } | { outcome: 'NOT_THERE' };

/**
 * Takes a product out of a buyer's cart: safe to repeat (R33).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the buyer's lock: an order is being claimed), DATABASE_UNAVAILABLE
 */
export function removeCartLine(
  db: Database,
  line: { buyerId: string; sku: string },
  { lockBudgetMs = db.claims.lockBudgetMs, withinMs }: Patience = {},
): Promise<RemoveCartLineOutcome> {
  return db.claims.answer<RemoveCartLineOutcome>(
    {
      name: 'remove_cart_line',
      text: `select tahan.remove_cart_line($1::text, $2::text, $3::int) as answer`,
      values: [line.buyerId, line.sku, lockBudgetMs],
    },
    { withinMs },
  );
}
