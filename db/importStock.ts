import type { Database } from './database.js';
import type { Patience } from './stock.js';
import type { Counts } from './values.js';

/** One change of one bin. `quantity` is what came, the delta, what was counted, or the new safety stock. */
export interface ImportRow {
  sku: string;
  bin: string;
  action: 'restock' | 'adjust' | 'count' | 'safety_stock';
  quantity: number;
  /** Of a count: what was expected to be there. */
  expected?: number | undefined;
  reason: string;
  reference?: string | undefined;
}

/** What a row came to, and its bin as the row left it; null where there is no such bin. */
export interface RowResult {
  outcome:
    | 'DONE'
    | 'INSUFFICIENT_STOCK'
    | 'STOCK_CHANGED'
    | 'INVALID_QUANTITY'
    | 'REASON_REQUIRED'
    | 'PRODUCT_NOT_FOUND'
    | 'BIN_NOT_FOUND';
  counts: Counts | null;
  safetyStock: number | null;
  version: number | null;
}

export type ImportOutcome =
  /** REFUSED: all or nothing was asked for, and of the rows at least one was refused. */
  | { outcome: 'DONE' | 'REFUSED'; refused: number; results: RowResult[]; replayed?: true }
  /** The request id was used for other rows, or in another mode. */
  | { outcome: 'KEY_REUSED' };

/**
 * Applies all rows in one transaction, in order, and answers with one result a row (R37). Refused rows
 * are left out, or with `allOrNothing` undo all; a dry run undoes all and answers the same. A repeat
 * with the request id answers what the first one answered.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT (one of the bins), DATABASE_UNAVAILABLE
 */
export async function importStock(
  db: Database,
  rows: ImportRow[],
  how: { dryRun: boolean; allOrNothing: boolean; actor: string; requestId: string },
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience = {},
): Promise<ImportOutcome> {
  const answer = await db.changes.answer<Columns | { outcome: 'KEY_REUSED' }>(
    {
      name: 'import_stock',
      text: `select tahan.import_stock($1::jsonb, $2::boolean, $3::boolean, $4::text, $5::text, $6::int) as answer`,
      values: [
        JSON.stringify(rows),
        how.dryRun,
        how.allOrNothing,
        how.actor,
        how.requestId,
        lockBudgetMs,
      ],
    },
    { withinMs },
  );
  if (answer.outcome === 'KEY_REUSED') return answer;
  const { outcome, refused, replayed } = answer;
  const results = answer.outcomes.map((outcome, at): RowResult => {
    const [available, held, sold] = [answer.available[at], answer.held[at], answer.sold[at]];
    return {
      outcome,
      counts: available == null ? null : { available, held: held!, sold: sold! },
      safetyStock: answer.safetyStock[at]!,
      version: answer.version[at]!,
    };
  });
  return { outcome, refused, results, ...(replayed ? { replayed } : {}) };
}

/** The results as Postgres keeps them: a list for each of their fields. */
interface Columns {
  outcome: 'DONE' | 'REFUSED';
  refused: number;
  replayed?: true;
  outcomes: RowResult['outcome'][];
  available: (number | null)[];
  held: (number | null)[];
  sold: (number | null)[];
  safetyStock: (number | null)[];
  version: (number | null)[];
}
