import type { z } from 'zod';
import { listOrders } from '../db/listOrders.js';
import { listHolds, readHold, readOrder } from '../db/readHold.js';
import type { Checkout } from './canonical.js';
import { checkout } from './checkout.js';
import { Problem } from './errors.js';
import { page } from './faults.js';
import { noHold, refusalCodes } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showHold, showOrder, showPage } from './show.js';

const checkoutCodes = [
  ...refusalCodes,
  'IDEMPOTENCY_KEY_REQUIRED',
  'INVALID_SKU',
  'INVALID_QUANTITY',
  'INVALID_HOLD_SECONDS',
  'IDEMPOTENCY_KEY_REUSED',
  'PRODUCT_NOT_FOUND',
  'CHECKOUT_TIMED_OUT',
  'SALE_BUSY',
  'WORKFLOW_UNAVAILABLE',
] as const;

/** All times count from the arrival. A read waits less than a change: nothing that it reads is ever locked. */
const readUntilMs = 3000;

export const holdRoutes: Route[] = [
  checkoutRoute('hold', {
    path: '/v1/holds',
    summary: 'Hold units for a buyer, for a limited time',
    made: 'Held',
    body: schemas.checkoutBody,
    schema: schemas.hold,
  }),
  checkoutRoute('order', {
    path: '/v1/orders',
    summary:
      "Place an order, of lines or of the buyer's cart: a hold with an order number and the prices of this moment",
    made: 'Placed and held',
    body: schemas.orderBody,
    schema: schemas.order,
  }),
  route({
    method: 'get',
    path: '/v1/orders',
    summary: 'Orders of one buyer, for an operator of all, newest first',
    role: 'shop',
    query: schemas.ordersQuery,
    answers: { 200: { description: 'A page of orders', schema: schemas.list(schemas.order) } },
    codes: ['FORBIDDEN'],
    async handle({ query, clock, role }, { db }) {
      if (role !== 'operator' && query.buyer_id === undefined) {
        throw new Problem(
          'FORBIDDEN',
          'A shop key lists the orders of one buyer: name `buyer_id`.',
        );
      }
      const filter = { ...query, buyerId: query.buyer_id };
      const orders = await page(query.cursor, listOrders(db, filter, clock.left(readUntilMs)));
      return ok(showPage(orders, (hold) => showOrder(hold, hold.order!)));
    },
  }),
  route({
    method: 'get',
    path: '/v1/orders/:number',
    summary: 'An order by its number',
    role: 'shop',
    query: schemas.ownerQuery,
    answers: { 200: { description: 'The order', schema: schemas.order } },
    codes: ['ORDER_NOT_FOUND'],
    async handle({ params, query, clock }, { db }) {
      // Read off a screen and typed again: its letters may be small.
      const number = params['number']!.toUpperCase();
      const known = /^[0-9A-Z-]{1,40}$/.test(number);
      const hold = known ? await readOrder(db, number, clock.left(readUntilMs)) : null;
      if (!hold?.order || !isOf(query.buyer_id, hold.buyerId)) {
        throw new Problem('ORDER_NOT_FOUND', 'There is no such order.');
      }
      return ok(showOrder(hold, hold.order));
    },
  }),
  route({
    method: 'get',
    path: '/v1/holds',
    summary: 'Holds of all buyers, newest first',
    role: 'operator',
    query: schemas.holdsQuery,
    answers: { 200: { description: 'A page of holds', schema: schemas.list(schemas.hold) } },
    codes: ['INVALID_SKU'],
    async handle({ query, clock }, { db }) {
      const filter = {
        ...query,
        buyerId: query.buyer_id,
        expiresBefore: query.expires_before,
      };
      const holds = await page(query.cursor, listHolds(db, filter, clock.left(readUntilMs)));
      return ok(showPage(holds, showHold));
    },
  }),
  route({
    method: 'get',
    path: '/v1/holds/:id',
    summary: 'A hold in its present state',
    role: 'shop',
    query: schemas.ownerQuery,
    answers: { 200: { description: 'The hold', schema: schemas.hold } },
    codes: ['HOLD_NOT_FOUND'],
    async handle({ params, query, clock }, { db }) {
      const hold = await readHold(db, holdId(params), clock.left(readUntilMs));
      if (hold === null || !isOf(query.buyer_id, hold.buyerId)) throw noHold();
      return ok(showHold(hold));
    },
  }),
];

/** Holds and orders are checked out in the same way; only what is shown differs. */
function checkoutRoute(
  kind: Checkout['kind'],
  {
    path,
    summary,
    made,
    body,
    schema,
  }: {
    path: string;
    summary: string;
    made: string;
    body: typeof schemas.checkoutBody | typeof schemas.orderBody;
    schema: z.ZodType;
  },
): Route {
  return route({
    method: 'post',
    path,
    summary,
    role: 'shop',
    query: schemas.noQuery,
    body,
    idempotencyKey: 'required',
    answers: {
      201: { description: made, schema, headers: ['Location'] },
      200: {
        description: `This key was used before: the ${kind} in its present state`,
        schema,
        headers: ['Location', 'Idempotent-Replayed'],
      },
      202: {
        description: 'Not known yet: repeat the POST with the same key',
        schema: schemas.claiming,
        headers: ['Location', 'Retry-After'],
      },
    },
    codes: [...checkoutCodes],
    handle: (call, api) => checkout(call, api, kind),
  });
}

/** Something that is no uuid is no hold's id: the same answer as for one that is not there. */
export function holdId(params: Record<string, string>): string {
  const id = params['id']!;
  if (!isHoldId(id)) throw noHold();
  return id.toLowerCase();
}

function isHoldId(id: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id);
}

/** Whether it is this buyer's, when one is named: "not yours" and "not there" are the same (S6). */
export function isOf(asked: string | undefined, buyerId: string): boolean {
  return asked === undefined || asked === buyerId;
}
