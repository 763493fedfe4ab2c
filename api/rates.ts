import { rateLimit } from 'express-rate-limit';
import type { AugmentedRequest } from 'express-rate-limit';
import type { Request, RequestHandler, Response } from 'express';
import { Problem } from './errors.js';
import type { Call } from './route.js';

/** A rate is a number of requests in so many seconds, from the first of them on. */
export const rateWindowSeconds = 10;

/**
 * How much one API key, and one buyer, may ask of this process: a brake for scripts in front of the
 * rules that Postgres decides by, which stay exact. Counted in memory and refused before Postgres or
 * Temporal hear of it. Repeats with the same Idempotency-Key count like any request.
 */
export interface Rates {
  byKey: RequestHandler;
  /** After the body was checked: whoever it names in `buyer_id`; nobody, where it names none. */
  byBuyer: RequestHandler;
}

export function createRates(limits: { perKey: number | null; perBuyer: number | null }): Rates {
  return {
    byKey: brake(limits.perKey, 'requests of this API key', (call) => call.keyId),
    byBuyer: brake(limits.perBuyer, 'checkouts of this buyer', buyerOf),
  };
}

function brake(
  limit: number | null,
  what: string,
  whose: (call: Call) => string | undefined,
): RequestHandler {
  if (limit === null) return (_req, _res, next) => next();
  const of = (res: Response) => whose(res.locals['call'] as Call);
  return rateLimit({
    windowMs: rateWindowSeconds * 1000,
    limit,
    standardHeaders: false,
    legacyHeaders: false,
    // Its checks are about addresses and proxies, which decide nothing here.
    validate: false,
    skip: (_req, res) => of(res) === undefined,
    keyGenerator: (_req, res) => of(res)!,
    handler: (req, _res, next) =>
      next(
        new Problem(
          'RATE_LIMITED',
          `There were more than ${limit} ${what} within ${rateWindowSeconds} seconds.`,
          { retryAfterSeconds: secondsLeft(req) },
        ),
      ),
  });
}

function buyerOf({ body }: Call): string | undefined {
  const { buyer_id: buyer } = (body ?? {}) as { buyer_id?: unknown };
  return typeof buyer === 'string' ? buyer : undefined;
}

function secondsLeft(req: Request): number {
  const { resetTime } = (req as AugmentedRequest)['rateLimit']!;
  const leftMs = (resetTime?.getTime() ?? Infinity) - Date.now();
  return Math.max(1, Math.min(rateWindowSeconds, Math.ceil(leftMs / 1000)));
}
