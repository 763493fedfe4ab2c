import type { Database } from './database.js';
import type { Patience } from './stock.js';

/** Rules of the installation about each buyer, whatever the products allow; null: no such rule. */
export interface BuyerRules {
  /** How many holds one buyer may have open at once; 0: none allowed. */
  maxOpenHolds: number | null;
  coolDown: CoolDown | null;
}

/** After so many holds that expired unpaid within so many seconds, no claim for so many seconds. */
export interface CoolDown {
  holds: number;
  withinSeconds: number;
  seconds: number;
}

export type PutBuyerRulesOutcome =
  | { outcome: 'CHANGED' }
  | { outcome: 'UNCHANGED' }
  | { outcome: 'REASON_REQUIRED' }
  | { outcome: 'INVALID'; field: string; detail: string };

/**
 * Changes the rules about buyers (R10, S10), with a reason, kept in setting_changes with before,
 * after and actor. What is left out keeps its value. They count for the claims that begin after it:
 * what is open stays open.
 * @throws DatabaseFault STOCK_LOCK_TIMEOUT, DATABASE_UNAVAILABLE
 */
export function putBuyerRules(
  db: Database,
  rules: Partial<BuyerRules>,
  by: { actor: string; reason: string },
  { lockBudgetMs = db.changes.lockBudgetMs, withinMs }: Patience = {},
): Promise<PutBuyerRulesOutcome> {
  return db.changes.answer<PutBuyerRulesOutcome>(
    {
      name: 'put_buyer_rules',
      text: `select tahan.put_buyer_rules($1::jsonb, $2::text, $3::text, $4::int) as answer`,
      values: [JSON.stringify(rules), by.actor, by.reason, lockBudgetMs],
    },
    { withinMs },
  );
}
