import type { Database } from './database.js';

/**
 * How long a batch of holds that end waits for a bin, in ms. It is of many products and keeps the bins that it
 * has while it waits for the next: whoever keeps one of them must not keep the others' holds open. A hot bin is
 * free every few ms; whose bin was not is asked for again with the next batch.
 */
export function patienceMs(db: Database): number {
  return Math.min(50, db.changes.lockBudgetMs);
}
