import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { System } from './processes.js';
import { succeeded } from './service.js';
import type { Answer } from './service.js';
import { deliverAsStripe, succeededAtStripe } from './stripeEvents.js';

/** What is there before something goes away, and what was asked meanwhile. */
export interface Before {
  sku: string;
  /** Of the buyer `again`, whose key will be repeated. */
  repeated: { key: string; id: string };
  order: string;
  cancelled: string;
  extended: string;
  /** Of two units, of which one is given back. */
  released: string;
  /** Sold, and taken back. */
  returned: string;
  paid: string;
  paidAtStripe: string;
  /** A payment that has confirmed its hold. */
  applied: string;
  /** One request each, however often it is sent. */
  cancelKey: string;
  extendKey: string;
  releaseKey: string;
  returnKey: string;
  event: object;
  eventId: string;
  eventOfStripe: string;
  /** First checkouts: their keys are new with every try. */
  checkouts: { path: string; buyer: string; key: string; answer: Answer<{ id?: string }> }[];
  /** Changes of stock: new with every try, and repeated afterwards. */
  changes: { path: string; body: object; key: string; units: number }[];
}

export type Ask = (system: System, before: Before) => Promise<Answer<unknown>>;

/** Endpoints that behave alike, each as it is declared in `routes`. */
export const rows = {
  'first checkout': {
    'post /v1/holds': (system, before) => firstCheckout(system, before, '/v1/holds'),
    'post /v1/orders': (system, before) => firstCheckout(system, before, '/v1/orders'),
  },
  'repeat of a key': {
    'post /v1/holds (again)': (system, { sku, repeated: { key } }) =>
      system.attempt({ [sku]: 1 }, { buyer: 'again', key }),
  },
  read: {
    'get /v1/holds/:id': (system, { extended }) => system.get(`/v1/holds/${extended}`),
    'get /v1/orders/:number': (system, { order }) => system.get(`/v1/orders/${order}`),
    'get /v1/orders': (system) => system.get('/v1/orders?buyer_id=again'),
    'get /v1/carts/:buyer_id': (system) => system.get('/v1/carts/again'),
    'get /v1/holds': (system, { sku }) => read(system, `/v1/holds?sku=${sku}`),
    'get /v1/holds/:id/movements': (system, { paid }) =>
      read(system, `/v1/holds/${paid}/movements`),
    'get /v1/movements': (system, { sku }) => read(system, `/v1/movements?sku=${sku}`),
    'get /v1/products/:sku/statement': (system, { sku }) =>
      read(system, `/v1/products/${sku}/statement?limit=1`),
    'get /v1/payments': (system) => read(system, '/v1/payments?limit=1'),
    'get /v1/payments/unmatched': (system) => read(system, '/v1/payments/unmatched'),
    'get /v1/payments/:provider/:payment_id': (system, { applied }) =>
      read(system, `/v1/payments/default/${applied}`),
    'get /v1/settings/buyer-rules': (system) => read(system, '/v1/settings/buyer-rules'),
    'get /v1/products': (system) => read(system, '/v1/products?limit=1'),
    'get /v1/products/:sku': (system, { sku }) => read(system, `/v1/products/${sku}`),
    'get /v1/products/:sku/changes': (system, { sku }) =>
      read(system, `/v1/products/${sku}/changes`),
    'get /v1/stock': (system) => read(system, '/v1/stock?limit=1'),
    'get /v1/products/:sku/availability': (system, { sku }) =>
      system.get(`/v1/products/${sku}/availability`),
    'get /v1/availability/stream': (system, { sku }) => firstEvent(system, sku),
    'post /v1/availability': (system, { sku }) => system.post('/v1/availability', { skus: [sku] }),
  },
  'cancel, extend, release, return': {
    'post /v1/holds/:id/cancel': (system, { cancelled, cancelKey: idempotencyKey }) =>
      system.post(`/v1/holds/${cancelled}/cancel`, { reason: 'no more' }, { idempotencyKey }),
    'post /v1/holds/:id/extend': (system, { extended, extendKey: idempotencyKey }) =>
      system.post(`/v1/holds/${extended}/extend`, { seconds: 60 }, { idempotencyKey }),
    'post /v1/holds/:id/release': releaseOne,
    'post /v1/holds/:id/return': returnIt,
  },
  'payment event': {
    'post /v1/payments/events': (system, { event, eventId: id }) => system.deliver(event, { id }),
    'post /v1/payments/stripe/events': (system, { eventOfStripe }) =>
      deliverAsStripe(system, eventOfStripe),
  },
  'decision about a payment': {
    'post /v1/payments/:provider/:payment_id/decision': (system, { applied }) =>
      system.post(
        `/v1/payments/default/${applied}/decision`,
        { decision: 'refund', reason: 'by mistake' },
        { key: system.operatorKey },
      ),
  },
  'change of stock': {
    'post /v1/products/:sku/bins/:code/restock': (system, before) =>
      change(system, before, 'restock', { quantity: 3, reason: 'truck' }, 3),
    'post /v1/products/:sku/bins/:code/adjustments': (system, before) =>
      change(system, before, 'adjustments', { delta: -1, reason: 'broken' }, -1),
    'post /v1/products/:sku/bins/:code/move': (system, before) =>
      change(system, before, 'move', { to: 'b2', quantity: 1, reason: 'nearer' }, 0),
    'post /v1/stock/imports': (system, before) => importOne(system, before),
    'put /v1/products/:sku': (system, { sku }) => system.put(`/v1/products/${sku}`, {}),
    'put /v1/products/:sku/bins/:code': (system, { sku }) =>
      system.put(`/v1/products/${sku}/bins/b1`, {}),
    'put /v1/settings/buyer-rules': (system) =>
      system.put('/v1/settings/buyer-rules', { reason: 'as before' }),
  },
  'change of a cart': {
    'put /v1/carts/:buyer_id/lines/:sku': (system, { sku }) =>
      system.put(`/v1/carts/full/lines/${sku}`, { quantity: 2 }, { key: system.shopKey }),
    'delete /v1/carts/:buyer_id/lines/:sku': (system, { sku }) =>
      system.send('DELETE', `/v1/carts/emptied/lines/${sku}`),
    'delete /v1/carts/:buyer_id': (system) => system.send('DELETE', '/v1/carts/emptied'),
  },
  'livez, openapi': {
    'get /livez': (system) => system.get('/livez', { key: null }),
    'get /openapi.json': (system) => system.get('/openapi.json', { key: null }),
  },
  readyz: { 'get /readyz': (system) => system.get('/readyz', { key: null }) },
} as const satisfies Record<string, Record<string, Ask>>;

export type Group = keyof typeof rows;

function read(system: System, path: string): Promise<Answer<unknown>> {
  return system.get(path, { key: system.operatorKey });
}

/** A stream up to its first event, or its refusal. */
async function firstEvent(system: System, sku: string): Promise<Answer<unknown>> {
  const began = performance.now();
  const leaving = new AbortController();
  const found = await fetch(`${system.url()}/v1/availability/stream?skus=${sku}`, {
    headers: { authorization: `Bearer ${system.shopKey}` },
    signal: leaving.signal,
  });
  const headers = Object.fromEntries(found.headers);
  const { status } = found;
  let text = '';
  for await (const part of found.body!.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (/^data: .*\n$/m.test(text)) break;
  }
  leaving.abort();
  const took = performance.now() - began;
  const json = status === 200 ? /^data: (.*)$/m.exec(text)?.[1] : text;
  return { status, headers, text, body: JSON.parse(json!) as never, took };
}

async function firstCheckout(system: System, before: Before, path: string) {
  const [buyer, key] = [`b-${randomUUID()}`, randomUUID()];
  const answer = await system.attempt<{ id?: string }>({ [before.sku]: 1 }, { path, buyer, key });
  before.checkouts.push({ path, buyer, key, answer });
  return answer;
}

function change(system: System, before: Before, what: string, body: object, units: number) {
  return changeAt(system, before, `/v1/products/${before.sku}/bins/b1/${what}`, body, units);
}

function importOne(system: System, before: Before) {
  const row = { sku: before.sku, bin: 'b1', action: 'restock', quantity: 2, reason: 'truck' };
  return changeAt(system, before, '/v1/stock/imports', { rows: [row] }, 2);
}

function changeAt(system: System, before: Before, path: string, body: object, units: number) {
  const made = { path, body, key: randomUUID(), units };
  before.changes.push(made);
  return makeChange(system, made);
}

export function makeChange(
  system: System,
  { path, body, key: idempotencyKey }: Before['changes'][number],
): Promise<Answer<unknown>> {
  return system.post(path, body, { key: system.operatorKey, idempotencyKey });
}

export function releaseOne(system: System, { released, releaseKey, sku }: Before) {
  const body = { lines: [{ sku, quantity: 1 }], reason: 'one is enough' };
  return system.post(`/v1/holds/${released}/release`, body, { idempotencyKey: releaseKey });
}

export function returnIt(system: System, { returned, returnKey: idempotencyKey }: Before) {
  const body = { reason: 'does not fit', restock: true, refund_minor: 0 };
  const sent = { key: system.operatorKey, idempotencyKey };
  return system.post<unknown>(`/v1/holds/${returned}/return`, body, sent);
}

/** A product with a hold for everything that can be asked about one. */
export async function prepare(system: System): Promise<Before> {
  const sku = await system.product([1000, 0]);
  const hold = async (of: Parameters<System['hold']>[1] = {}) =>
    (await system.hold({ [sku]: 1 }, of)).id;
  const key = randomUUID();
  const path = '/v1/orders';
  const order = await system.checkout<{ order_number: string }>({ [sku]: 1 }, { path });
  const applied = randomUUID();
  const sold = await hold();
  expect((await system.paid(sold, { payment_id: applied })).status).toBe(200);
  await system.becomes(sold, 'CONFIRMED');
  const returned = await hold();
  expect((await system.paid(returned)).status).toBe(200);
  await system.becomes(returned, 'CONFIRMED');
  const released = (await system.hold({ [sku]: 2 })).id;
  const [again, cancelled, extended, paid, paidAtStripe] = [
    await hold({ buyer: 'again', key }),
    await hold(),
    await hold(),
    await hold(),
    await hold(),
  ];
  return {
    sku,
    repeated: { key, id: again },
    order: order.body.order_number,
    cancelled,
    extended,
    released,
    returned,
    paid,
    paidAtStripe,
    applied,
    cancelKey: randomUUID(),
    extendKey: randomUUID(),
    releaseKey: randomUUID(),
    returnKey: randomUUID(),
    event: succeeded({ hold_id: paid }),
    eventId: randomUUID(),
    eventOfStripe: succeededAtStripe(paidAtStripe, 2500).body,
    checkouts: [],
    changes: [],
  };
}
