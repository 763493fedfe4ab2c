import express from 'express';
import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Logger } from 'pino';
import type { Database } from '../db/database.js';
import { readSalt } from '../db/installation.js';
import { send, sendSettle } from '../workflows/contract.js';
import type { Holds } from '../workflows/contract.js';
import { Keys } from './auth.js';
import { buyerRuleRoutes } from './buyerRules.js';
import { availabilityRoutes } from './availability.js';
import { cartRoutes } from './carts.js';
import { Claims } from './claims.js';
import { Clock } from './clock.js';
import { errors, Problem, saysWhen } from './errors.js';
import { asProblem, check, checkText, parseJson, utf8 } from './faults.js';
import { Gate } from './gate.js';
import { idempotencyKey, theOne } from './headers.js';
import { healthRoutes } from './health.js';
import { holdChangeRoutes } from './holdChanges.js';
import { holdRoutes } from './holds.js';
import { ledgerRoutes } from './ledger.js';
import { openApiRoute } from './openapi.js';
import { paymentRoutes } from './payments.js';
import { productRoutes } from './products.js';
import { createRates } from './rates.js';
import type { Rates } from './rates.js';
import { logRequests, securityHeaders, writeText } from './middleware.js';
import { Readings } from './readings.js';
import { returnRoutes } from './returns.js';
import type { Call, Reply, Route } from './route.js';
import type { ApiSettings } from './settings.js';
import { settlementRoutes } from './settlements.js';
import { stockRoutes } from './stock.js';
import { Watch } from './watch.js';
import { stockImportRoutes } from './stockImport.js';

export interface ApiParts {
  db: Database;
  holds: Holds;
  settings: ApiSettings;
  logger: Logger;
  /** How messages reach the workflows; a test may listen in. */
  send?: typeof send;
  sendSettle?: typeof sendSettle;
  /** Ends the streams: nothing else here outlives its request. */
  stopping?: AbortSignal;
}

/** What the routes work with. */
export interface Api extends Required<ApiParts> {
  keys: Keys;
  claims: Claims;
  /** One read for all checkouts that arrive together. */
  readings: Readings;
  gate: Gate;
  rates: Rates;
  /** Holds whose workflow is being started because their key was repeated. */
  adopting: Set<string>;
  /** Availability as it changes, for the streams. */
  watch: Watch;
  /** The salt of this installation's hold ids, read once. */
  salt(withinMs: number): Promise<string>;
}

/** Every route of this service, in the order of /openapi.json. */
export const routes: Route[] = [
  ...holdRoutes,
  ...holdChangeRoutes,
  ...cartRoutes,
  ...returnRoutes,
  ...productRoutes,
  ...availabilityRoutes,
  ...stockRoutes,
  ...stockImportRoutes,
  ...ledgerRoutes,
  ...paymentRoutes,
  ...settlementRoutes,
  ...buyerRuleRoutes,
  ...healthRoutes,
  openApiRoute(() => routes),
];

export function createApi(parts: ApiParts): express.Express {
  const { stopping = new AbortController().signal } = parts;
  const readings = new Readings(parts.db);
  const api: Api = {
    send,
    sendSettle,
    ...parts,
    stopping,
    keys: new Keys(parts.db),
    claims: new Claims(),
    readings,
    gate: new Gate(readings, parts.settings.claimsInFlight),
    rates: createRates(parts.settings.rates),
    adopting: new Set(),
    watch: new Watch(parts.db, parts.settings.streams, stopping),
    salt: saltOnce(parts.db),
  };
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  // No `qs`: nested parameters can't be made, and a repeated one is a list, which no field takes.
  app.set('query parser', 'simple');
  app.set('case sensitive routing', true);
  app.set('strict routing', true);
  app.use(logRequests(parts.logger));
  app.use(securityHeaders());
  const answerProblems = answerProblem(parts.logger);
  // Also behind each route: beyond it a refusal would be matched against all other routes first.
  for (const route of routes) app[route.method](route.path, ...serve(route, api), answerProblems);
  app.use((req: Request) => {
    throw new Problem('ROUTE_NOT_FOUND', `There is no ${req.method} ${req.path.slice(0, 200)}.`);
  });
  app.use(answerProblems);
  return app;
}

/**
 * The order of checks: key, its rate, headers, size and form of the body, fields, the buyer's rate.
 * The first fault answers.
 */
function serve(route: Route, api: Api): RequestHandler[] {
  const keyed = route.role === 'shop' || route.role === 'operator';
  const authenticate: RequestHandler = async (req, res, next) => {
    const call = { clock: new Clock(), actor: route.role } as Call;
    if (route.role === 'shop' || route.role === 'operator') {
      const header = theOne(req, 'authorization', 'UNAUTHENTICATED');
      const key = await api.keys.authenticate(header, route.role, call.clock);
      call.keyId = key.id;
      call.role = key.role;
      call.actor = `${key.role}:${key.name}`;
    }
    res.locals['call'] = call;
    res.locals['spentMs'] = call.clock.passedMs;
    next();
  };
  const readHeaders: RequestHandler = (req, res, next) => {
    const call = res.locals['call'] as Call;
    if (route.idempotencyKey !== undefined) {
      call.idempotencyKey = idempotencyKey(req, route.idempotencyKey === 'required');
    }
    next();
  };
  const readFields: RequestHandler = (req, res, next) => {
    const call = res.locals['call'] as Call;
    // A body that came slowly is the caller's time, not ours; the look-up of the key was ours (with
    // connections killed under it, an answer took 6.3 s).
    call.clock = new Clock(res.locals['spentMs'] as number);
    call.requestId = res.locals['requestId'] as string;
    call.params = params(req);
    call.query = check(route.query, query(req), 'query');
    call.rawHeaders = req.rawHeaders;
    call.accepts = acceptedType(req, route);
    if (route.role === 'signed') call.raw = (req.body ?? Buffer.alloc(0)) as Buffer;
    else if (route.takesCsv && req.is('text/csv')) call.csv = csv(req);
    else if (route.body !== undefined) call.body = check(route.body, json(req), 'body');
    next();
  };
  const answer: RequestHandler = async (_req, res) => {
    await write(res, await route.handle(res.locals['call'] as Call, api));
  };
  return [
    authenticate,
    ...(keyed ? [api.rates.byKey] : []),
    readHeaders,
    ...(route.method === 'get' ? [] : [readBody(route)]),
    readFields,
    ...(keyed ? [api.rates.byBuyer] : []),
    answer,
  ];
}

/** The raw bytes: signatures are over them, and Postgres can't hold all that JSON may say. */
function readBody(route: Route): RequestHandler {
  const limit = (route.bodyLimitKb ?? (route.role === 'signed' ? 256 : 16)) * 1024;
  return express.raw({ limit, type: () => true, inflate: false });
}

function json(req: Request): unknown {
  const type = req.headers['content-type'] ?? '';
  if (!/^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(type)) {
    throw new Problem('INVALID_REQUEST', 'Send JSON with `Content-Type: application/json`.');
  }
  return parseJson((req.body ?? Buffer.alloc(0)) as Buffer);
}

function csv(req: Request): string {
  const text = utf8((req.body ?? Buffer.alloc(0)) as Buffer);
  checkText(text, 'The body');
  return text;
}

function params(req: Request): Record<string, string> {
  const found = req.params as Record<string, string>;
  for (const value of Object.values(found)) checkText(value, 'The path');
  return found;
}

function query(req: Request): unknown {
  for (const [name, value] of Object.entries(req.query)) {
    checkText(name, 'The query');
    for (const text of [value].flat()) checkText(text as string, 'The query');
  }
  return { ...req.query };
}

/** JSON unless the caller prefers another type that the route can answer with. */
function acceptedType(req: Request, { answers }: Route): Call['accepts'] {
  const others = Object.values(answers).flatMap(({ alsoAs = [] }) => alsoAs);
  if (others.length === 0) return 'application/json';
  const best = req.accepts(['application/json', ...others]);
  return best === false ? 'application/json' : (best as Call['accepts']);
}

async function write(
  res: Response,
  { status, body, headers = {}, type, stream }: Reply,
): Promise<void> {
  if (stream !== undefined) {
    res.status(status).set('cache-control', 'no-store').set(headers);
    return writeStream(res, stream);
  }
  const text = type === undefined ? JSON.stringify(body) : (body as string);
  writeText(res, status, type ?? 'application/json', headers, text);
}

/** Once its head is out, a stream that fails can only be cut: its reader connects again. */
async function writeStream(res: Response, stream: NonNullable<Reply['stream']>): Promise<void> {
  const gone = new AbortController();
  res.once('close', () => gone.abort());
  // Its caller may have gone while it was prepared, and HEAD wants no more than the head.
  if (res.closed || res.req.method === 'HEAD') gone.abort();
  // When it ends, nothing more comes on this connection: it does not keep a closing server.
  res.type('text/event-stream').set('connection', 'close').flushHeaders();
  const send = (piece: string) =>
    new Promise<void>((resolve) => {
      if (gone.signal.aborted || res.write(piece)) return resolve();
      const done = () => {
        res.off('drain', done).off('close', done);
        resolve();
      };
      res.once('drain', done).once('close', done);
    });
  try {
    await stream(send, gone.signal);
    res.end();
  } catch (error) {
    res.destroy();
    throw error;
  }
}

/** The one place that writes problems: no stack and no SQL leaves it (S22). */
function answerProblem(logger: Logger) {
  return (error: unknown, _req: Request, res: Response, _next: NextFunction): void => {
    if (res.headersSent) {
      res.destroy();
      return;
    }
    const known = asProblem(error);
    const requestId = res.locals['requestId'] as string;
    if (known === undefined) logger.error({ err: error, requestId }, 'defect');
    const problem = known ?? new Problem('INTERNAL_ERROR', 'Something went wrong in this service.');
    const { status } = errors[problem.code];
    const headers = {
      ...problem.headers,
      ...(saysWhen(problem.code) && { 'retry-after': String(problem.retryAfterSeconds) }),
      ...(status === 401 && { 'www-authenticate': 'Bearer' }),
    };
    const text = JSON.stringify({ ...problem.toJSON(), request_id: requestId });
    writeText(res, status, 'application/problem+json', headers, text);
  };
}

/** Read when first needed, so that the API starts while Postgres is away. */
function saltOnce(db: Database): Api['salt'] {
  let salt: string | undefined;
  return async (withinMs) => (salt ??= await readSalt(db, withinMs));
}
