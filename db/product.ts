import type { Database } from './database.js';
import type { Patience } from './stock.js';

/** What a shop may set of a product; what is left out keeps its value, or its default at first. */
export interface ProductSettings {
  name?: string;
  active?: boolean;
  /** Whole minor units and an ISO 4217 code; both null: the product has no price. */
  priceMinor?: number | null;
  currency?: string | null;
  holdSeconds?: number;
  maxHoldSeconds?: number;
  maxExtensions?: number;
  /** 0: none allowed; null: no limit. */
  perBuyerLimit?: number | null;
  latePayment?: 'refund' | 'accept_if_available' | 'review';
  allocation?: 'in_order' | 'spread';
  display?: 'exact' | 'bands';
}

export type PutOutcome =
  | { outcome: 'CREATED' }
  | { outcome: 'CHANGED' }
  | { outcome: 'UNCHANGED' }
  | { outcome: 'REASON_REQUIRED' }
  | { outcome: 'INVALID'; field: string; detail: string }
  | { outcome: 'NOT_FOUND'; what: 'product' };

/**
 * Creates a product or changes its settings; a change needs a reason and is kept in
 * setting_changes with before, after and actor. Open holds keep what they were made with.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT, DATABASE_UNAVAILABLE
 */
export function putProduct(
  db: Database,
  sku: string,
  settings: ProductSettings,
  by: { actor: string; reason: string | null },
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience = {},
): Promise<PutOutcome> {
  return db.changes.answer<PutOutcome>(
    {
      name: 'put_product',
      text: `select tahan.put_product($1::text, $2::jsonb, $3::text, $4::text, $5::int) as answer`,
      values: [sku, JSON.stringify(settings), by.actor, by.reason, lockBudgetMs],
    },
    { withinMs },
  );
}
