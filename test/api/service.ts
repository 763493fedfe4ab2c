import { randomBytes, randomUUID } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { Webhook } from 'standardwebhooks';
import request from 'supertest';
import { v5 as uuidV5 } from 'uuid';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import type { z } from 'zod';
import { createActivities } from '../../activities/index.js';
import type { PaymentProvider } from '../../activities/payments/provider.js';
import { createApi, routes } from '../../api/app.js';
import type { ApiParts } from '../../api/app.js';
import { canonical } from '../../api/canonical.js';
import { errors, saysWhen } from '../../api/errors.js';
import type { ErrorCode } from '../../api/errors.js';
import { codesOf } from '../../api/openapi.js';
import type { Route } from '../../api/route.js';
import type * as schemas from '../../api/schemas.js';
import type { ApiSettings } from '../../api/settings.js';
import * as schema from '../../api/schemas.js';
import { openDatabase } from '../../db/database.js';
import { readSalt } from '../../db/installation.js';
import { addKey, newKey } from '../../db/keys.js';
import { send, sendSettle } from '../../workflows/contract.js';
import type { Answers } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { engine } from '../workflows/engine.js';
import type { Engine } from '../workflows/engine.js';

export type Hold = z.infer<typeof schemas.hold>;
export type Order = z.infer<typeof schemas.order>;
export type Cart = z.infer<typeof schemas.cart>;
export type Product = z.infer<typeof schemas.product>;
export type Availability = z.infer<typeof schemas.availability>;
export type Movement = z.infer<typeof schemas.movement>;
export interface Page<Item> {
  items: Item[];
  next_cursor: string | null;
}

export interface Problem {
  code: ErrorCode;
  detail: string;
  shortfalls: { sku: string; requested: number; available: number }[];
  errors: { in: string; field: string; detail: string; line?: number; column?: string }[];
  request_id: string;
}

export interface Answer<T> {
  status: number;
  headers: Record<string, string>;
  text: string;
  body: T & Problem;
  /** How long it took, in ms. */
  took: number;
}

export interface Sent {
  key?: string | null;
  idempotencyKey?: string;
  body?: unknown;
  /** Sent as it is, in place of `body`. */
  raw?: string | Buffer;
  headers?: Record<string, string>;
  /** The address of another API process. */
  at?: string | undefined;
}

/** The whole service on a database of its own: API over HTTP, workers, Temporal, Postgres. */
export interface Service {
  shop: Shop;
  engine: Engine;
  url(): string;
  shopKey: string;
  operatorKey: string;
  secret: string;
  stripeSecret: string;
  /** What the API logged. */
  log: string[];
  send<T = Hold>(method: string, path: string, sent?: Sent): Promise<Answer<T>>;
  get<T = Hold>(path: string, sent?: Sent): Promise<Answer<T>>;
  post<T = Hold>(path: string, body: unknown, sent?: Sent): Promise<Answer<T>>;
  put<T = Product>(path: string, body: unknown, sent?: Sent): Promise<Answer<T>>;
  /** POST /v1/holds of a fresh buyer and key, once; what is given takes its place. */
  attempt<T = Hold>(
    lines: Record<string, number> | { sku: string; quantity: number }[],
    rest?: { buyer?: string; key?: string; path?: string; fields?: object; at?: string },
  ): Promise<Answer<T>>;
  /** The same as a shop does it: the key is repeated while the answer is "again" or "not known yet". */
  checkout<T = Hold>(...of: Parameters<Service['attempt']>): Promise<Answer<T>>;
  /** The same, and insists on a hold. */
  hold(...of: Parameters<Service['attempt']>): Promise<Hold>;
  /**
   * The claim of a checkout that another process of this API let through: its answer. A refusal of it is kept, while
   * one by the gate is not.
   */
  claimElsewhere(...of: Parameters<Service['attempt']>): Promise<Answers['claimed']>;
  /** A product with one bin per number given, stocked with so many units, all over HTTP. */
  product(
    stock: number[],
    settings?: Record<string, unknown> & { safety_stock?: number[] },
  ): Promise<string>;
  counts(sku: string): Promise<Pick<Availability, 'available' | 'held' | 'sold'>>;
  /** What happened to a product after its opening: "reserve 3 b1", the oldest first. */
  ledger(sku: string): Promise<string[]>;
  /** A signed delivery of a payment event. */
  deliver(
    event: object,
    delivery?: { id?: string; at?: Date },
  ): Promise<Answer<{ outcome: string }>>;
  paid(holdId: string, data?: object, id?: string): Promise<Answer<{ outcome: string }>>;
  /** The id that a hold of this buyer and key has or would have. */
  holdIdOf(buyer: string, key: string): Promise<string>;
  /** Header by header as given, also repeated ones, which a polite client does not send. */
  rawRequest(
    method: string,
    path: string,
    headers: string[],
    body?: string | Buffer,
  ): Promise<Answer<unknown>>;
  /** A new API process as far as it can be told from outside: nothing is remembered. */
  restartApi(settings?: Partial<ApiSettings>): Promise<void>;
  /** A second process of the API beside the first, as far as it can be told from outside. */
  anotherApi(): Promise<{ url: string; close(): Promise<unknown> }>;
  /** Waits until a hold has this status. */
  becomes(holdId: string, status: string, withinMs?: number): Promise<Hold>;
  close(): Promise<void>;
}

export interface ServiceOptions {
  /** Without workers nothing is claimed. */
  workers?: boolean;
  claimsInFlight?: number;
  streams?: number;
  /** Whom the worker asks for refunds; without one they wait. */
  provider?: PaymentProvider;
  /** Servers of the test's own, in place of the run's. */
  servers?: { postgres: { version: number; url: string }; temporalAddress: string };
  parts?: (parts: Required<ApiParts> & { url: string }) => Partial<ApiParts>;
}

export async function openService(options: ServiceOptions = {}): Promise<Service> {
  const { servers } = options;
  const shop = await openShop(servers?.postgres);
  const activitiesDb = openDatabase({ url: shop.url, takeAppRole: true });
  const engine_ = await engine(
    createActivities(activitiesDb, () => options.provider),
    servers && { address: servers.temporalAddress },
  );
  if (options.workers ?? true) await engine_.start();
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const stripeSecret = `whsec_${randomBytes(24).toString('hex')}`;
  const log: string[] = [];
  const parts: ApiParts = {
    db: shop.db,
    holds: engine_.holds,
    settings: {
      webhookSecrets: [secret],
      stripeWebhookSecrets: [stripeSecret],
      claimsInFlight: options.claimsInFlight ?? 60,
      rates: { perKey: null, perBuyer: null },
      streams: options.streams ?? 300,
    },
    logger: pino({ level: 'info' }, { write: (line) => void log.push(line) }),
  };
  const changed = (own: ApiParts) => ({
    ...own,
    ...options.parts?.({
      send,
      sendSettle,
      stopping: new AbortController().signal,
      ...own,
      url: shop.url,
    }),
  });
  let server = await listen(changed(parts));
  const [shopKey, operatorKey] = [newKey(), newKey()];
  await addKey(shop.db, 'shop', 'web', shopKey);
  await addKey(shop.db, 'operator', 'ann', operatorKey);

  const service: Service = {
    shop,
    engine: engine_,
    url: () => urlOf(server),
    shopKey,
    operatorKey,
    secret,
    stripeSecret,
    log,
    async send<T>(method: string, path: string, sent: Sent = {}) {
      const key = sent.key === undefined ? shopKey : sent.key;
      let call = request(sent.at ?? service.url())
        [method.toLowerCase() as 'get'](path)
        .ok(() => true);
      if (key !== null) call = call.set('authorization', `Bearer ${key}`);
      if (sent.idempotencyKey !== undefined)
        call = call.set('idempotency-key', sent.idempotencyKey);
      if (sent.body !== undefined || sent.raw !== undefined) {
        call = call.set('content-type', 'application/json');
      }
      for (const [name, value] of Object.entries(sent.headers ?? {})) call = call.set(name, value);
      // As text, whatever it is: supertest would parse it by its type.
      call = call.buffer(true).parse(asText);
      const began = performance.now();
      const payload = sent.raw ?? (sent.body === undefined ? undefined : JSON.stringify(sent.body));
      const found = await (payload === undefined ? call : call.send(payload));
      const took = performance.now() - began;
      const text = found.body as string;
      const body = JSON.parse(text) as T & Problem;
      const answer = { status: found.status, headers: found.headers, text, body, took };
      asDocumented(method, path, answer);
      return answer;
    },
    get: (path, sent) => service.send('GET', path, sent),
    post: (path, body, sent) => service.send('POST', path, { body, ...sent }),
    put: (path, body, sent) => service.send('PUT', path, { body, key: operatorKey, ...sent }),
    attempt(lines, { buyer, key, path = '/v1/holds', fields = {}, at } = {}) {
      const list = Array.isArray(lines)
        ? lines
        : Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity }));
      return service.post(
        path,
        { buyer_id: buyer ?? `buyer-${randomUUID()}`, lines: list, ...fields },
        { idempotencyKey: key ?? randomUUID(), at },
      );
    },
    async checkout<T>(...[lines, of = {}]: Parameters<Service['attempt']>) {
      const same = {
        ...of,
        buyer: of.buyer ?? `buyer-${randomUUID()}`,
        key: of.key ?? randomUUID(),
      };
      for (let tries = 1; ; tries += 1) {
        const answer = await service.attempt<T>(lines, same);
        if ((answer.status !== 503 && answer.status !== 202) || tries === 20) return answer;
      }
    },
    async hold(...of) {
      const answer = await service.checkout(...of);
      expect([200, 201], answer.text).toContain(answer.status);
      return answer.body;
    },
    async claimElsewhere(lines, { buyer = `buyer-${randomUUID()}`, key, path, fields = {} } = {}) {
      const list = Array.isArray(lines)
        ? lines
        : Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity }));
      const kind = path === '/v1/orders' ? 'order' : 'hold';
      const body = { buyer_id: buyer, lines: list, ...fields };
      const salt = await readSalt(shop.db);
      const { kind: _, ...wanted } = canonical(kind, body, key ?? randomUUID(), salt);
      const sent = await send(
        engine_.holds,
        {
          ...wanted,
          claimDeadline: await shop.now(3500),
          order: kind === 'order',
          indexed: engine_.holds.indexed,
        },
        { kind: 'claimed' },
        { withinMs: 4000 },
      );
      if (sent.outcome !== 'ANSWERED') throw new Error(`the claim was ${sent.outcome}`);
      return sent.answer;
    },
    async product(stock, { safety_stock = [], ...settings } = {}) {
      const sku = `P-${randomUUID().slice(0, 8)}`;
      expect((await service.put(`/v1/products/${sku}`, settings)).status).toBe(201);
      for (const [index, quantity] of stock.entries()) {
        const bin = `/v1/products/${sku}/bins/b${index + 1}`;
        const body = { safety_stock: safety_stock[index] ?? 0 };
        expect((await service.put(bin, body)).status).toBe(201);
        if (quantity === 0) continue;
        const opening = { quantity, reason: 'opening' };
        const answer = await service.post(`${bin}/restock`, opening, { key: operatorKey });
        expect(answer.status, answer.text).toBe(200);
      }
      return sku;
    },
    async counts(sku) {
      const { body } = await service.get<Availability>(`/v1/products/${sku}/availability`);
      return { available: body.available, held: body.held, sold: body.sold };
    },
    async ledger(sku) {
      const { body } = await service.get<Page<Movement>>(`/v1/movements?sku=${sku}&limit=200`, {
        key: operatorKey,
      });
      return body.items
        .filter(({ reason }) => reason !== 'opening')
        .map(({ type, quantity, bin }) => `${type} ${quantity} ${bin}`)
        .reverse();
    },
    deliver(event, { id = randomUUID(), at = new Date() } = {}) {
      const raw = JSON.stringify(event);
      const headers = signed(secret, raw, { id, at });
      return service.send('POST', '/v1/payments/events', { key: null, raw, headers });
    },
    paid: (holdId, data = {}, id) =>
      service.deliver(succeeded({ hold_id: holdId, ...data }), id === undefined ? {} : { id }),
    async holdIdOf(buyer, key) {
      return uuidV5(JSON.stringify([buyer, key]), await readSalt(shop.db));
    },
    async rawRequest(method, path, headers, body) {
      const began = performance.now();
      const { status, text, got } = await rawRequest(service.url(), method, path, headers, body);
      const took = performance.now() - began;
      const answer = { status, headers: got, text, body: JSON.parse(text) as Problem, took };
      asDocumented(method, path, answer);
      return answer;
    },
    async restartApi(settings = {}) {
      await close(server);
      server = await listen(changed({ ...parts, settings: { ...parts.settings, ...settings } }));
    },
    async anotherApi() {
      const another = await listen(changed(parts));
      return { url: urlOf(another), close: () => close(another) };
    },
    async becomes(holdId, status, withinMs = 15_000) {
      const endsAt = Date.now() + withinMs;
      for (;;) {
        const { body } = await service.get(`/v1/holds/${holdId}`);
        if (body.status === status) return body;
        if (Date.now() > endsAt) throw new Error(`${holdId} is ${body.status}, not ${status}`);
        await new Promise((again) => setTimeout(again, 50));
      }
    },
    async close() {
      await close(server);
      await engine_.close();
      await activitiesDb.close();
      await shop.close();
    },
  };
  if (options.workers ?? true) await warmUp(service);
  return service;
}

/** A worker's first claim loads the workflows, on a busy machine for longer than a claim may take. */
async function warmUp(service: Service): Promise<void> {
  const { id } = await service.hold({ [await service.product([1])]: 1 });
  await service.post(`/v1/holds/${id}/cancel`, { reason: 'warm now' });
}

async function listen(parts: ApiParts): Promise<Server> {
  const server = createServer(createApi(parts));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return server;
}

function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function close(server: Server): Promise<unknown> {
  server.closeAllConnections();
  return new Promise((closed) => server.close(closed));
}

function rawRequest(
  url: string,
  method: string,
  path: string,
  headers: string[],
  body?: string | Buffer,
): Promise<{ status: number; text: string; got: Record<string, string> }> {
  return new Promise((resolve, reject) => {
    const { hostname, port, host } = new URL(url);
    const length = Buffer.byteLength(body ?? '');
    const all = ['host', host, 'content-length', String(length), ...headers];
    const call = httpRequest({ hostname, port, method, path, headers: all }, (res) => {
      asText(res, (error: Error | null, text: string) => {
        const got = res.headers as Record<string, string>;
        if (error) reject(error);
        else resolve({ status: res.statusCode!, text, got });
      });
    });
    call.on('error', reject).end(body);
  });
}

/**
 * One service for all tests of a file. After each test the books must agree, no workflow task may
 * have failed, and the API may not have had a defect.
 */
export function sharedService(options: ServiceOptions = {}): Service {
  const service = {} as Service;
  beforeAll(async () => {
    Object.assign(service, await openService(options));
  });
  afterEach(async () => {
    await service.shop.shiftClock(0);
    expect(await audit(service.shop.url)).toEqual({});
    expect(service.engine.problems.splice(0)).toEqual([]);
    expect(service.log.splice(0).filter((line) => line.includes('"defect"'))).toEqual([]);
  });
  afterAll(() => service.close());
  return service;
}

export function succeeded(data: object): object {
  return {
    type: 'payment.succeeded',
    timestamp: new Date().toISOString(),
    data: { payment_id: randomUUID(), amount_minor: 1000, currency: 'EUR', ...data },
  };
}

export function signed(
  secret: string,
  raw: string,
  { id = randomUUID(), at = new Date() }: { id?: string; at?: Date } = {},
): Record<string, string> {
  return {
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': new Webhook(secret).sign(id, at, raw),
  };
}

/** The same so many times at once. */
export function atOnce<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}

/**
 * Answers that no load may lead to. A machine that is too busy may leave a checkout or a message to a
 * workflow undone until its deadline, and says so; never earlier, and never that something is locked.
 */
export function defectsOf(answers: Answer<unknown>[]): string[] {
  const honestAfterMs: Partial<Record<ErrorCode, number>> = {
    CHECKOUT_TIMED_OUT: 3_000,
    WORKFLOW_UNAVAILABLE: 3_000,
    SALE_BUSY: 1_400,
  };
  return answers
    .filter(({ status }) => status >= 500)
    .filter(({ body, took }) => took < (honestAfterMs[body.code] ?? Infinity))
    .map(({ text, took }) => `${Math.round(took)} ms: ${text}`);
}

/** How often each status came. */
export function statuses(answers: { status: number }[]): Record<number, number> {
  const times: Record<number, number> = {};
  for (const { status } of answers) times[status] = (times[status] ?? 0) + 1;
  return times;
}

function asText(
  res: NodeJS.ReadableStream,
  done: (error: Error | null, body: string) => void,
): void {
  const parts: Buffer[] = [];
  res.on('data', (part: Buffer) => parts.push(part));
  res.on('end', () => done(null, Buffer.concat(parts).toString()));
  res.on('error', (error: Error) => done(error, ''));
}

/**
 * Every answer of every test is held against what /openapi.json says of its route: status, code,
 * and each field, none more and none less.
 */
function asDocumented(
  method: string,
  path: string,
  { status, headers, body, text }: Answer<unknown>,
) {
  const problem = (headers['content-type'] ?? '').startsWith('application/problem+json');
  const route = routeOf(method, path);
  expect(headers['x-request-id'], text).toMatch(/^[0-9a-f-]{36}$/);
  if (problem) {
    const { code } = body;
    expect(errors[code]?.status, `${method} ${path}: ${text}`).toBe(status);
    expect(schema.problem.parse(body), text).toEqual(body);
    expect(saysWhen(code)).toBe('retry-after' in headers);
    if (route !== undefined)
      expect([...codesOf(route)], `${method} ${path}: ${text}`).toContain(code);
    expect(text).not.toMatch(/\bat .*\.(ts|js):\d|node_modules|select |insert |tahan\./i);
  } else {
    const said = route?.answers[status];
    expect(said, `${method} ${path} answered ${status}: ${text}`).toBeDefined();
    expect(said!.schema.parse(body), text).toEqual(body);
    for (const name of said!.headers ?? []) expect(headers).toHaveProperty(name.toLowerCase());
  }
}

function routeOf(method: string, path: string): Route | undefined {
  const bare = path.split('?', 1)[0]!;
  return routes.find(
    (route) =>
      route.method === method.toLowerCase() &&
      new RegExp(`^${route.path.replaceAll(/:\w+/g, '[^/]+')}$`).test(bare),
  );
}
