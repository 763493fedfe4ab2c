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
  name: 'adjust' | 'restock',
  change: StockChange,
  amount: number,
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience,
): Promise<StockOutcome> {
  return db.changes.answer<StockOutcome>(
    {
      name,
      text: `select tahan.${name}($1::text, $2::text, $3::int, $4::text, $5::text, $6::text, $7::text, $8::int) as answer`,
      values: [
        change.sku,
        change.bin,
        amount,
        change.reason,
        change.actor,
        change.requestId,
        change.reference,
        lockBudgetMs,
      ],
    },
    { withinMs },
  );
}
