import type { Database } from './database.js';

/** What a buyer means to order, with what its products are called and cost at this moment. */
export interface Cart {
  buyerId: string;
  lines: {
    sku: string;
    quantity: number;
    name: string;
    /** False: an order of this cart is refused until the line is taken out. */
    active: boolean;
    unitPriceMinor: number | null;
    currency: string | null;
  }[];
  /** The sum of the priced lines, one for each currency; an order can have only one. */
  totals: { currency: string; amountMinor: number }[];
}

/** A buyer's cart (R33); one without lines when nothing was ever put into it. */
export function readCart(db: Database, buyerId: string, withinMs?: number): Promise<Cart> {
  return db.reads.answer<Cart>(
    { name: 'read_cart', text: `select tahan.show_cart($1::text) as answer`, values: [buyerId] },
    { withinMs },
  );
}
