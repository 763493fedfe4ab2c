import type { Database } from './database.js';
import type { Patience } from './stock.js';

/**
 * Takes everything out of a buyer's cart: safe to repeat (R33).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the buyer's lock: an order is being claimed), DATABASE_UNAVAILABLE
 */
export function clearCart(
  db: Database,
  buyerId: string,
  { lockBudgetMs = db.claims.lockBudgetMs, withinMs }: Patience = {},
): Promise<{ outcome: 'CLEARED' }> {
  return db.claims.answer<{ outcome: 'CLEARED' }>(
    {
      name: 'clear_cart',
      text: `select tahan.clear_cart($1::text, $2::int) as answer`,
      values: [buyerId, lockBudgetMs],
    },
    { withinMs },
  );
}
