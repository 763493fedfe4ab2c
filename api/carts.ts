import { clearCart } from '../db/clearCart.js';
import { putCartLine } from '../db/putCartLine.js';
import type { PutCartLineOutcome } from '../db/putCartLine.js';
import { readCart } from '../db/readCart.js';
import { removeCartLine } from '../db/removeCartLine.js';
import type { Api } from './app.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { check } from './faults.js';
import { patience, skuOf } from './products.js';
import { noProduct, refusalProblem } from './refusals.js';
import { ok, route } from './route.js';
import type { Reply, Route } from './route.js';
import * as schemas from './schemas.js';
import { showCart } from './show.js';

/** Every change answers with the cart as it then is, and may be repeated. */
export const cartRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/carts/:buyer_id',
    summary: "A buyer's cart, with the prices of this moment; nothing is held for it",
    role: 'shop',
    query: schemas.noQuery,
    answers: { 200: { description: 'The cart, with or without lines', schema: schemas.cart } },
    codes: [],
    handle: ({ params, clock }, api) => theCart(buyerOf(params), api, clock),
  }),
  route({
    method: 'put',
    path: '/v1/carts/:buyer_id/lines/:sku',
    summary: "Put a product into a buyer's cart, in place of what it had of it",
    role: 'shop',
    query: schemas.noQuery,
    body: schemas.cartLineBody,
    answers: { 200: { description: 'The cart', schema: schemas.cart } },
    codes: [
      'INVALID_SKU',
      'INVALID_QUANTITY',
      'PRODUCT_NOT_FOUND',
      'PRODUCT_INACTIVE',
      'CART_FULL',
      'STOCK_LOCK_TIMEOUT',
    ],
    async handle({ params, body, clock }, api) {
      const buyerId = buyerOf(params);
      const line = { buyerId, sku: skuOf(params), quantity: body.quantity };
      refuse(await putCartLine(api.db, line, patience(clock)), line.sku);
      return theCart(buyerId, api, clock);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/carts/:buyer_id/lines/:sku',
    summary: "Take a product out of a buyer's cart",
    role: 'shop',
    query: schemas.noQuery,
    answers: { 200: { description: 'The cart', schema: schemas.cart } },
    codes: ['INVALID_SKU', 'STOCK_LOCK_TIMEOUT'],
    async handle({ params, clock }, api) {
      const buyerId = buyerOf(params);
      await removeCartLine(api.db, { buyerId, sku: skuOf(params) }, patience(clock));
      return theCart(buyerId, api, clock);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/carts/:buyer_id',
    summary: "Empty a buyer's cart",
    role: 'shop',
    query: schemas.noQuery,
    answers: { 200: { description: 'The cart, empty', schema: schemas.cart } },
    codes: ['STOCK_LOCK_TIMEOUT'],
    async handle({ params, clock }, api) {
      const buyerId = buyerOf(params);
      await clearCart(api.db, buyerId, patience(clock));
      return theCart(buyerId, api, clock);
    },
  }),
];

async function theCart(buyerId: string, { db }: Api, clock: Clock): Promise<Reply> {
  return ok(showCart(await readCart(db, buyerId, clock.left())));
}

function buyerOf(params: Record<string, string>): string {
  return check(schemas.buyerPath, { buyer_id: params['buyer_id'] }, 'path').buyer_id;
}

function refuse({ outcome }: PutCartLineOutcome, sku: string): void {
  switch (outcome) {
    case 'PUT':
      return;
    case 'NOT_FOUND':
      throw noProduct(sku);
    case 'PRODUCT_INACTIVE':
      throw refusalProblem({ outcome, sku });
    case 'CART_FULL':
      throw new Problem('CART_FULL', 'A cart has room for 50 products.');
    case 'INVALID_QUANTITY':
      throw new Problem('INVALID_QUANTITY', 'A line has 1 to 10,000 units.');
  }
}
