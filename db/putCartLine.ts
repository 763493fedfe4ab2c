import type { Database } from './database.js';
import type { Patience } from './stock.js';

export type PutCartLineOutcome =
  | { outcome: 'PUT' }
  | { outcome: 'NOT_FOUND' }
  | { outcome: 'PRODUCT_INACTIVE' }
  /** Not a whole number from 1 to 10,000. */
  | { outcome: 'INVALID_QUANTITY' }
  /** The cart has 50 other lines already. */
  | { outcome: 'CART_FULL' };

/**
 * Puts a line into a buyer's cart, in place of the one that the product had: safe to repeat (R33, B04, F11).
 * Holds no units and keeps no price. Goes over the connections of the claims, which the API does not use
 * otherwise, so that a wait for the buyer's lock keeps no payment and no change of stock out.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (the buyer's lock: an order is being claimed), DATABASE_UNAVAILABLE
 */
export function putCartLine(
  db: Database,
  line: { buyerId: string; sku: string; quantity: number },
  { lockBudgetMs = db.claims.lockBudgetMs, withinMs }: Patience = {},
): Promise<PutCartLineOutcome> {
  return db.claims.answer<PutCartLineOutcome>(
    {
      name: 'put_cart_line',
      text: `select tahan.put_cart_line($1::text, $2::text, $3::int, $4::int) as answer`,
      values: [line.buyerId, line.sku, line.quantity, lockBudgetMs],
    },
    { withinMs },
  );
}
