/**
 * The arm without an engine, a process of its own: POST /v1/holds with the checks of our API and the
 * claim of our worker, batches included, in one process. No workflow, so no expiry, no payment and no
 * gate; otherwise what a shop would write without Temporal.
 */
import { createServer } from 'node:http';
import express from 'express';
import type { NextFunction, Request, Response } from 'express';
import { pino } from 'pino';
import { claimTogether } from '../../activities/claimTogether.js';
import { Keys } from '../../api/auth.js';
import { canonical } from '../../api/canonical.js';
import { Clock } from '../../api/clock.js';
import { Problem, saysWhen } from '../../api/errors.js';
import { asProblem, check, parseJson } from '../../api/faults.js';
import { idempotencyKey, theOne } from '../../api/headers.js';
import { logRequests, securityHeaders, writeText } from '../../api/middleware.js';
import { holdTooLong, keyReused, noProduct, refusalProblem } from '../../api/refusals.js';
import { checkoutBody } from '../../api/schemas.js';
import { showHold } from '../../api/show.js';
import { openDatabase } from '../../db/database.js';
import { readSalt } from '../../db/installation.js';
import { readHold } from '../../db/readHold.js';

const db = openDatabase({ url: process.env['DATABASE_URL']!, takeAppRole: true });
const keys = new Keys(db);
const salt = await readSalt(db);
const claim = claimTogether(db, Number(process.env['TAHAN_CLAIM_CONNECTIONS'] || 4));
const logger = pino({ level: process.env['TAHAN_LOG_LEVEL'] || 'info', base: null });

const app = express();
app.disable('x-powered-by');
app.disable('etag');
app.set('query parser', 'simple');
app.use(logRequests(logger));
app.use(securityHeaders());
app.post(
  '/v1/holds',
  async (req, _res, next) => {
    await keys.authenticate(theOne(req, 'authorization', 'UNAUTHENTICATED'), 'shop', new Clock());
    next();
  },
  express.raw({ limit: 16 * 1024, type: () => true, inflate: false }),
  async (req, res) => {
    const body = check(checkoutBody, parseJson(req.body as Buffer), 'body');
    const wanted = canonical('hold', body, idempotencyKey(req, true)!, salt);
    const claimDeadline = new Date(Date.now() + 3500).toISOString();
    const outcome = await claim({ ...wanted, claimDeadline, order: false });
    switch (outcome.outcome) {
      case 'HELD':
      case 'ALREADY': {
        const hold = await readHold(db, wanted.holdId);
        const status = outcome.outcome === 'HELD' ? 201 : 200;
        const headers = { location: `/v1/holds/${wanted.holdId}` };
        writeText(res, status, 'application/json', headers, JSON.stringify(showHold(hold!)));
        return;
      }
      case 'KEY_REUSED':
        throw keyReused();
      case 'NOT_FOUND':
        throw noProduct(outcome.sku);
      case 'HOLD_TOO_LONG':
        throw holdTooLong(outcome.maxHoldSeconds);
      case 'CLAIM_TOO_LATE':
        throw new Problem('CHECKOUT_TIMED_OUT', 'The claim was not decided within 3.5 seconds.');
      case 'INSUFFICIENT_STOCK':
      case 'BUYER_LIMIT':
      case 'BUYER_COOL_DOWN':
      case 'PRODUCT_INACTIVE':
      case 'MIXED_CURRENCIES':
      case 'CART_EMPTY':
        throw refusalProblem(outcome);
    }
  },
);
app.use((error: unknown, _req: Request, res: Response, _next: NextFunction) => {
  const problem = asProblem(error) ?? new Problem('INTERNAL_ERROR', String(error));
  const requestId = res.locals['requestId'] as string;
  const text = JSON.stringify({ ...problem.toJSON(), request_id: requestId });
  const headers: Record<string, string> = saysWhen(problem.code)
    ? { 'retry-after': String(problem.retryAfterSeconds) }
    : {};
  writeText(res, problem.status, 'application/problem+json', headers, text);
});

const server = createServer(app);
server.keepAliveTimeout = 15_000;
server.listen(Number(process.env['PORT']), '127.0.0.1', () =>
  process.stdout.write(`${JSON.stringify({ ready: true })}\n`),
);
