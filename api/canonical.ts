import { hash } from 'node:crypto';
import { v5 as uuidV5 } from 'uuid';
import type { Line } from '../db/values.js';
import { Problem } from './errors.js';
import { maxQuantity } from './schemas.js';
import type { CheckoutBody } from './schemas.js';

/** A checkout in its one canonical form, under the id that its buyer and key always have (R08). */
export interface Checkout {
  kind: 'hold' | 'order';
  /** uuid v5 of buyer and key: a repeat, in any process, means the same hold. */
  holdId: string;
  idempotencyKey: string;
  /** Tells a repeat from another request under the same key. */
  requestHash: string;
  buyerId: string;
  /** Null: whatever is in the buyer's cart when the order is claimed. */
  lines: Line[] | null;
  holdSeconds: number | null;
  metadata: Record<string, string>;
}

/** Order of fields, order of lines and white space do not matter (B19). */
export function canonical(
  kind: Checkout['kind'],
  body: CheckoutBody,
  idempotencyKey: string,
  salt: string,
): Checkout {
  const lines = body.lines === undefined ? null : mergeLines(body.lines, 'checkout');
  const metadata = Object.entries(body.metadata ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const holdSeconds = body.hold_seconds ?? null;
  const form = [
    kind,
    body.buyer_id,
    // Not what is in the cart: a repeat finds its order when the cart has changed.
    lines === null ? 'cart' : lines.map(({ sku, quantity }) => [sku, quantity]),
    holdSeconds,
    metadata,
  ];
  return {
    kind,
    // Of the pair as JSON: ("ab", "c") and ("a", "bc") must not meet.
    holdId: uuidV5(JSON.stringify([body.buyer_id, idempotencyKey]), salt),
    idempotencyKey,
    requestHash: hash('sha256', JSON.stringify(form)),
    buyerId: body.buyer_id,
    lines,
    holdSeconds,
    metadata: Object.fromEntries(metadata),
  };
}

/** Stock and limits belong to the product, not to the line (B04); sorted as Postgres sorts. */
export function mergeLines(lines: Line[], what: 'checkout' | 'release' | 'return'): Line[] {
  const sums = new Map<string, number>();
  for (const { sku, quantity } of lines) sums.set(sku, (sums.get(sku) ?? 0) + quantity);
  for (const [sku, quantity] of sums) {
    if (quantity > maxQuantity) {
      throw new Problem(
        'INVALID_QUANTITY',
        `The lines of ${sku} add up to ${quantity}; at most 10,000 of one product fit a ${what}.`,
      );
    }
  }
  return [...sums]
    .map(([sku, quantity]) => ({ sku, quantity }))
    .sort((a, b) => (a.sku < b.sku ? -1 : 1));
}
