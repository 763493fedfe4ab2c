import type { ClaimRefusal } from './claim.js';
import type { Database } from './database.js';
import type { Hold } from './readHold.js';
import type { Line } from './values.js';

/** A checkout before its claim; without hold and buyer, what could be sold of some products. */
export interface WantedCheckout {
  holdId: string | null;
  buyerId: string | null;
  /** Null: what is in the buyer's cart. */
  lines: Line[] | null;
}

export interface CheckoutProduct {
  sku: string;
  active: boolean;
  maxHoldSeconds: number;
  currency: string | null;
  perBuyerLimit: number | null;
  /** Units that a claim could take, those of overdue unpaid holds counted in (R07). */
  sellable: number;
  /** There are more overdue holds than were counted: `sellable` is too small, and no ground for a refusal. */
  more: boolean;
}

/** What is known about many checkouts; the holds are at least as new as all the rest. */
export interface Checkouts {
  /** The database's clock at this read: deadlines are counted from it. */
  now: string;
  /** The holds that these keys already made, refused ones included. */
  holds: Hold[];
  /** The wanted products that exist. */
  products: CheckoutProduct[];
  carts: (Line & { buyerId: string })[];
  /** What a product's limit counts of a buyer, only of products that have one; overdue unpaid holds left out. */
  bought: { buyerId: string; sku: string; units: number }[];
  /** Buyers whom a rule of the installation refuses. */
  refused: { buyerId: string; refusal: ClaimRefusal }[];
}

/**
 * All that the API wants to know before it starts workflows, for many checkouts in one read. It locks
 * nothing and may be stale at once: it is good for a refusal, never for a promise (R12).
 */
export function readCheckouts(
  db: Database,
  wanted: WantedCheckout[],
  withinMs?: number,
): Promise<Checkouts> {
  const pairs = wanted.flatMap(({ buyerId, lines }) =>
    (lines ?? []).map(({ sku }) => [buyerId, sku] as const),
  );
  return db.reads.answer<Checkouts>(
    {
      name: 'read_checkouts',
      text: `select tahan.read_checkouts($1::uuid[], $2::text[], $3::text[], $4::text[]) as answer`,
      values: [
        wanted.map(({ holdId }) => holdId),
        pairs.map(([buyerId]) => buyerId),
        pairs.map(([, sku]) => sku),
        wanted.filter(({ lines }) => lines === null).map(({ buyerId }) => buyerId),
      ],
    },
    { withinMs },
  );
}
