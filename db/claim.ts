import type { Database } from './database.js';
import type { HoldStatus, Line, Shortfall } from './values.js';

export interface ClaimRequest {
  /** uuid v5 of buyer and key: the same request always claims under the same id (R08). */
  holdId: string;
  buyerId: string;
  idempotencyKey: string;
  /** Hash of the request's body: the same key with another body is `KEY_REUSED`. */
  requestHash: string;
  /** Null: the buyer's cart, as it stands under the buyer's lock; only for an order (R33). */
  lines: Line[] | null;
  /** Asked hold time in seconds; null takes the smallest of the products. */
  holdSeconds: number | null;
  /** By the database's clock, RFC 3339: a claim that gets its locks later takes nothing (F8). */
  claimDeadline: string;
  /** True when the hold is an order: number and price snapshot are written with it (R33). */
  order: boolean;
  /** Up to 2 KB of strings, not for personal data. */
  metadata: Record<string, string>;
}

/** A refusal that is kept: a repeat of the claim gets the same one again, a fresh key is decided anew. */
export type ClaimRefusal =
  | { outcome: 'INSUFFICIENT_STOCK'; shortfalls: Shortfall[] }
  /** The product's limit of units per buyer, or the installation's limit of open holds per buyer (R10). */
  | { outcome: 'BUYER_LIMIT'; sku: string; limit: number }
  | { outcome: 'BUYER_LIMIT'; openHolds: number; limit: number }
  /** Too many holds of this buyer expired unpaid: `retryAfterMs` counts from the refusal (S10). */
  | {
      outcome: 'BUYER_COOL_DOWN';
      retryAt: string;
      retryAfterMs: number;
      holds: number;
      withinSeconds: number;
    }
  | { outcome: 'PRODUCT_INACTIVE'; sku: string }
  | { outcome: 'MIXED_CURRENCIES'; currencies: string[] }
  | { outcome: 'CART_EMPTY' };

export type ClaimOutcome =
  | {
      outcome: 'HELD';
      holdId: string;
      requestHash: string;
      expiresAt: string;
      remainingMs: number;
      /** What was in the cart; only of a claim that took one. */
      lines?: Line[];
    }
  | {
      outcome: 'ALREADY';
      holdId: string;
      requestHash: string;
      status: Exclude<HoldStatus, 'REJECTED'>;
      expiresAt: string;
      remainingMs: number;
      lines?: Line[];
    }
  | (ClaimRefusal & { requestHash: string })
  | { outcome: 'KEY_REUSED' }
  | { outcome: 'NOT_FOUND'; sku: string }
  | { outcome: 'HOLD_TOO_LONG'; maxHoldSeconds: number }
  | { outcome: 'CLAIM_TOO_LATE' };

/**
 * Takes the units of all lines, or of none, and writes the hold, in one transaction (R03, R24).
 * An order without lines takes the buyer's cart: HELD empties it, any other answer leaves it (R33).
 * Safe to repeat: an existing hold answers `ALREADY` or its own refusal, even after the deadline.
 * `NOT_FOUND`, `HOLD_TOO_LONG` and `CLAIM_TOO_LATE` leave no row. `remainingMs` is at least 1.
 * @throws DatabaseFault RESERVATION_IN_PROGRESS, STOCK_LOCK_TIMEOUT, DATABASE_UNAVAILABLE: nothing has changed,
 *   or (DATABASE_UNAVAILABLE) the answer was lost and a repeat finds it.
 */
export function claim(db: Database, request: ClaimRequest): Promise<ClaimOutcome> {
  return db.claims.answer<ClaimOutcome>({
    name: 'claim',
    text: `select tahan.claim($1::uuid, $2::text, $3::text, $4::text, $5::jsonb, $6::int, $7::timestamptz, $8::boolean, $9::jsonb, $10::int) as answer`,
    values: [
      request.holdId,
      request.buyerId,
      request.idempotencyKey,
      request.requestHash,
      request.lines === null ? null : JSON.stringify(request.lines),
      request.holdSeconds,
      request.claimDeadline,
      request.order,
      JSON.stringify(request.metadata),
      db.claims.lockBudgetMs,
    ],
  });
}
