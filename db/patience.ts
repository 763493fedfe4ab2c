import type { Database } from './database.js';

/**
 * How long a batch of holds that end may wait for their bins, in ms. It is of many products: whoever keeps
 * one bin must not keep the others' holds open for the 5 s that a change alone may wait. A hot bin is free
 * every few ms.
 */
export function patienceMs(db: Database): number {
  return Math.min(500, db.changes.lockBudgetMs);
}
