import type { Database } from './database.js';
import type { PutOutcome } from './product.js';
import type { Patience } from './stock.js';

/**
 * Creates an empty bin of a product, or changes its safety stock; a change needs a reason and is
 * kept in setting_changes. Safety stock above the stock is allowed: sellable is then 0 (R36).
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT, DATABASE_UNAVAILABLE
 */
export function putBin(
  db: Database,
  bin: { sku: string; code: string; safetyStock?: number },
  by: { actor: string; reason: string | null },
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience = {},
): Promise<PutOutcome> {
  return db.changes.answer<PutOutcome>(
    {
      name: 'put_bin',
      text: `select tahan.put_bin($1::text, $2::text, $3::int, $4::text, $5::text, $6::int) as answer`,
      values: [bin.sku, bin.code, bin.safetyStock ?? null, by.actor, by.reason, lockBudgetMs],
    },
    { withinMs },
  );
}
