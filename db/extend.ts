import type { Database } from './database.js';
import type { HoldStatus } from './values.js';

export type ExtendOutcome =
  | { outcome: 'EXTENDED'; expiresAt: string; remainingMs: number; extensions: number }
  | { outcome: 'LIMIT'; maxExtensions: number; largestSeconds: number }
  | { outcome: 'ALREADY'; status: HoldStatus }
  | { outcome: 'EXPIRED' }
  /** The request id was used to ask for other seconds (B19). */
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'MISSING' };

/**
 * Adds `seconds` to the end of a HELD hold that is not yet overdue. Only `EXTENDED` moves the end.
 * A repeat with the same request id changes nothing and answers what the first one answered, with
 * the remaining time as of now. `largestSeconds` is what an extension could still ask for (0: none).
 * `EXPIRED`: the end has passed, whether or not the expiry has run; it is never renewed (B15).
 * @throws DatabaseFault STOCK_LEDGER_BUSY (the hold's row), DATABASE_UNAVAILABLE
 */
export function extend(
  db: Database,
  holdId: string,
  seconds: number,
  requestId: string,
  actor: string,
): Promise<ExtendOutcome> {
  return db.changes.answer<ExtendOutcome>({
    name: 'extend',
    text: `select tahan.extend($1::uuid, $2::int, $3::text, $4::text, $5::int) as answer`,
    values: [holdId, seconds, requestId, actor, db.changes.lockBudgetMs],
  });
}
