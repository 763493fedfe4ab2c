import type { Database } from './database.js';
import type { Hold } from './readHold.js';

export interface Checkout {
  /** The database's clock at this read: deadlines are counted from it. */
  now: string;
  /** The hold that this key already made, refused ones included; null if none. */
  hold: Hold | null;
  products: { sku: string; active: boolean; maxHoldSeconds: number }[];
}

/**
 * All that the API wants to know before it starts a workflow, in one read.
 * @param skus null: the products in the buyer's cart
 */
export function readCheckout(
  db: Database,
  holdId: string,
  skus: string[] | null,
  buyerId: string,
  withinMs?: number,
): Promise<Checkout> {
  return db.reads.answer<Checkout>(
    {
      name: 'read_checkout',
      text: `
        select jsonb_build_object(
          'now', tahan.instant(tahan.tahan_clock()),
          'hold', tahan.show_hold($1::uuid),
          'products', coalesce((
            select jsonb_agg(jsonb_build_object(
              'sku', p.sku, 'active', p.active, 'maxHoldSeconds', p.max_hold_seconds) order by p.sku)
            from tahan.products p where p.sku = any(coalesce($2::text[], array(
              select c.sku from tahan.carts c where c.buyer_id = $3::text)))), '[]')) as answer`,
      values: [holdId, skus, buyerId],
    },
    { withinMs },
  );
}

export type AfterDeadline =
  { outcome: 'FOUND'; hold: Hold } | { outcome: 'FREE' } | { outcome: 'BUSY' };

/**
 * What became of a claim whose deadline has passed: its row; or nothing with the claim's key free,
 * which means that nothing is held and nothing will be; or the key is busy: still being decided.
 */
export function readAfterDeadline(
  db: Database,
  holdId: string,
  claimDeadline: string,
  withinMs?: number,
): Promise<AfterDeadline> {
  return db.reads.answer<AfterDeadline>(
    {
      name: 'after_deadline',
      text: `select tahan.after_deadline($1::uuid, $2::timestamptz) as answer`,
      values: [holdId, claimDeadline],
    },
    { withinMs },
  );
}
