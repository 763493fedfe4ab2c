import type { z } from 'zod';
import type { Role } from '../db/keys.js';
import type { Api } from './app.js';
import type { Clock } from './clock.js';
import type { ErrorCode } from './errors.js';

/**
 * A route is said once: what it takes, what it answers, and the function between. `app.ts` serves
 * the list, `openapi.ts` writes it down.
 */
export interface Route {
  method: 'get' | 'put' | 'post' | 'delete';
  /** In Express's form: /v1/holds/:id */
  path: string;
  summary: string;
  /** The least role that may call it; `none` needs no key, `signed` needs a valid signature. */
  role: Role | 'none' | 'signed';
  /** Of a `signed` route: the headers that its signature is made of. */
  signature?: string[];
  query: z.ZodType;
  body?: z.ZodType;
  /** Set where a body may also be CSV: it then arrives as `call.csv`, unchecked. */
  takesCsv?: boolean;
  /** In KB; 16 when left out, 256 for a signed delivery. */
  bodyLimitKb?: number;
  /** Whether the Idempotency-Key header is required, allowed, or of no meaning. */
  idempotencyKey?: 'required' | 'optional';
  answers: Record<number, Answer>;
  /** What it refuses with, beside what every route of its role can say. */
  codes: ErrorCode[];
  handle(call: Call, api: Api): Promise<Reply>;
}

export interface Answer {
  description: string;
  schema: z.ZodType;
  headers?: string[];
  /** What it can answer instead of JSON, as the caller's Accept header asks. */
  alsoAs?: ('text/csv' | 'text/event-stream')[];
  /** What it answers in place of JSON, whatever was asked for; the schema is that of each event's data. */
  onlyAs?: 'text/event-stream';
}

export interface Call<Query = unknown, Body = unknown> {
  clock: Clock;
  params: Record<string, string>;
  query: Query;
  body: Body;
  /** The raw body, only where the route is `signed`. */
  raw?: Buffer;
  /** The body as text where the route takes CSV and CSV was sent; `body` is undefined then. */
  csv?: string;
  /** The best of the route's answer types by the Accept header. */
  accepts: 'application/json' | 'text/csv' | 'text/event-stream';
  /** name: value pairs as they came, for what Node joins or drops when a header is repeated. */
  rawHeaders: string[];
  /** Empty unless the route takes one. */
  idempotencyKey: string | undefined;
  role: Role | undefined;
  /** Of the API key; undefined where a route needs none. */
  keyId: string | undefined;
  /** Who did it, for the ledger: role and name of the key. */
  actor: string;
  requestId: string;
}

export interface Reply {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
  /** Set where `body` is the text itself and no JSON. */
  type?: 'text/csv';
  /**
   * In place of a body: writes pieces of an event stream until it returns or the caller has gone.
   * `write` resolves when there is room for more.
   */
  stream?: (write: (piece: string) => Promise<void>, gone: AbortSignal) => Promise<void>;
}

/** Ties the handler's types to the schemas, and forgets them: a list of routes is of one type. */
export function route<Query extends z.ZodType, Body extends z.ZodType>(
  said: Omit<Route, 'query' | 'body' | 'handle'> & {
    query: Query;
    body?: Body;
    handle(call: Call<z.infer<Query>, z.infer<Body>>, api: Api): Promise<Reply>;
  },
): Route {
  return said;
}

export function ok(body: unknown): Reply {
  return { status: 200, body };
}

export function csv(text: string, headers: Record<string, string> = {}): Reply {
  return { status: 200, body: text, type: 'text/csv', headers };
}
