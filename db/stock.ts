import type { Database } from './database.js';
import type { Counts } from './values.js';

/** Who asks, why, and under which request id: kept with the movement (R37). */
export interface StockChange {
  sku: string;
  bin: string;
  reason: string;
  actor: string;
  /** A repeat for the same bin answers what the first one answered and changes nothing. */
  requestId: string;
  reference: string | null;
}

export type StockOutcome =
  | { outcome: 'DONE'; version: number; counts: Counts; safetyStock: number }
  | { outcome: 'INSUFFICIENT_STOCK'; available: number }
  /** Of a count only: what is there is not what was expected. */
  | { outcome: 'STOCK_CHANGED'; counts: Counts }
  /** Zero, or the bin would pass 2,000,000,000 units. */
  | { outcome: 'INVALID_QUANTITY' }
  | { outcome: 'REASON_REQUIRED' }
  /** The request id was used for another change of this bin. */
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'NOT_FOUND'; what: 'product' | 'bin' };

/** How long an operator's request may wait in all, and for locks; the pool's own when left out. */
export interface Patience {
  withinMs?: number;
  lockBudgetMs?: number;
}

export async function changeStock(
  db: Database,
  name: 'adjust' | 'restock' | 'count_stock',
  change: StockChange,
  amounts: number[],
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience,
): Promise<StockOutcome> {
  const units = amounts.map((_, index) => `$${8 + index}::int`).join(', ');
  return db.changes.answer<StockOutcome>(
    {
      name,
      text: `select tahan.${name}($1::text, $2::text, ${units}, $3::text, $4::text, $5::text, $6::text, $7::int) as answer`,
      values: [
        change.sku,
        change.bin,
        change.reason,
        change.actor,
        change.requestId,
        change.reference,
        lockBudgetMs,
        ...amounts,
      ],
    },
    { withinMs },
  );
}
