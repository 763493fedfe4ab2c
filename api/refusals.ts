import type { ClaimRefusal } from '../db/claim.js';
import { Problem } from './errors.js';

/** Refusals that more than one route has, each with the sentence that names its cause. */

/** A refused hold is refused again, whatever is asked of it. */
export const refusalCodes = [
  'INSUFFICIENT_STOCK',
  'BUYER_LIMIT_EXCEEDED',
  'BUYER_COOL_DOWN',
  'PRODUCT_INACTIVE',
  'MIXED_CURRENCIES',
  'CART_EMPTY',
] as const;

/**
 * A refused claim as the shop is told it, at once and whenever the key is repeated.
 * @param now by the database's clock, when the refusal is read again: what is left of a cool-down
 */
export function refusalProblem(refusal: ClaimRefusal, now?: string): Problem {
  switch (refusal.outcome) {
    case 'INSUFFICIENT_STOCK': {
      const words = refusal.shortfalls.map(
        ({ sku, requested, available }) => `${requested} of ${sku} asked, ${available} free`,
      );
      return new Problem('INSUFFICIENT_STOCK', `Nothing was taken: ${words.join('; ')}.`, {
        members: { shortfalls: refusal.shortfalls },
      });
    }
    case 'BUYER_LIMIT':
      if ('openHolds' in refusal) {
        const { openHolds, limit } = refusal;
        return new Problem(
          'BUYER_LIMIT_EXCEEDED',
          `One buyer may have at most ${limit} open holds; this one has ${openHolds}.`,
          { members: { rule: 'max_open_holds', open_holds: openHolds, limit } },
        );
      }
      return new Problem(
        'BUYER_LIMIT_EXCEEDED',
        `One buyer may have at most ${refusal.limit} of ${refusal.sku}.`,
        { members: { rule: 'per_buyer_limit', sku: refusal.sku, limit: refusal.limit } },
      );
    case 'BUYER_COOL_DOWN': {
      const { retryAt, retryAfterMs, holds, withinSeconds } = refusal;
      const leftMs = now === undefined ? retryAfterMs : Date.parse(retryAt) - Date.parse(now);
      return new Problem(
        'BUYER_COOL_DOWN',
        `${holds} holds of this buyer expired unpaid within ${withinSeconds} seconds; the next one may be made at ${retryAt}.`,
        {
          members: { retry_at: retryAt },
          retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)),
        },
      );
    }
    case 'PRODUCT_INACTIVE':
      return new Problem('PRODUCT_INACTIVE', `${refusal.sku} is not on sale.`, {
        members: { sku: refusal.sku },
      });
    case 'MIXED_CURRENCIES':
      return new Problem(
        'MIXED_CURRENCIES',
        `The products are priced in ${refusal.currencies.join(' and ')}.`,
        { members: { currencies: refusal.currencies } },
      );
    case 'CART_EMPTY':
      return new Problem('CART_EMPTY', "There was nothing in the buyer's cart.");
  }
}

export function keyReused(): Problem {
  return new Problem(
    'IDEMPOTENCY_KEY_REUSED',
    'This buyer used this Idempotency-Key for a request with another body.',
  );
}

export function noProduct(sku: string): Problem {
  return new Problem('PRODUCT_NOT_FOUND', `There is no product ${sku}.`, { members: { sku } });
}

export function noBin(sku: string, code: string): Problem {
  return new Problem('BIN_NOT_FOUND', `${sku} has no bin ${code}.`);
}

export function holdTooLong(maxHoldSeconds: number): Problem {
  return new Problem(
    'INVALID_HOLD_SECONDS',
    `hold_seconds may be at most ${maxHoldSeconds} for these products.`,
    { members: { max_hold_seconds: maxHoldSeconds } },
  );
}

/** More units than there are to be had, of which line; `most` is 0 for a product that is not there. */
export function tooMany(
  asked: { sku: string }[],
  lines: { sku: string; requested: number; most: number }[],
  what: 'held' | 'sold and not returned',
): Problem {
  const words = lines.map(
    ({ sku, requested, most }) => `${requested} of ${sku} asked, ${most} ${what}`,
  );
  return new Problem('INVALID_QUANTITY', `Nothing was changed: ${words.join('; ')}.`, {
    members: {
      lines: lines.map(({ sku, requested, most }) => ({ sku, requested, available: most })),
      errors: lines.map(({ sku, most }) => ({
        in: 'body',
        field: `lines[${asked.findIndex((line) => line.sku === sku)}].quantity`,
        detail: `must be at most ${most}`,
      })),
    },
  });
}

export function noHold(): Problem {
  return new Problem('HOLD_NOT_FOUND', 'There is no such hold.');
}

/** Extend, release and return share one space of request ids per hold. */
export function otherChange(): Problem {
  return new Problem(
    'IDEMPOTENCY_KEY_REUSED',
    'This Idempotency-Key was used for another change of this hold.',
  );
}
