import type { BuyerRules } from './buyerRules.js';
import type { Database } from './database.js';

/** The rules about buyers as the next claim will meet them. */
export function readBuyerRules(
  db: Database,
  withinMs?: number,
): Promise<BuyerRules & { updatedAt: string }> {
  return db.reads.answer<BuyerRules & { updatedAt: string }>(
    { name: 'buyer_rules', text: `select tahan.show_buyer_rules() as answer`, values: [] },
    { withinMs },
  );
}
