import { putBin } from '../db/bin.js';
import { putProduct } from '../db/product.js';
import type { PutOutcome } from '../db/product.js';
import { readChanges } from '../db/readChanges.js';
import { listProducts, readProduct } from '../db/readProduct.js';
import type { Product } from '../db/readProduct.js';
import type { Api } from './app.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { check, page } from './faults.js';
import { noProduct } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { productSettings, showBin, showPage, showProduct, showSettingChange } from './show.js';

/** After the arrival; the same for the others. */
const readUntilMs = 3000;
/** Under the 4.7 s of the whole answer: a change that waits for a lock says so itself. */
const changeUntilMs = 4000;
const lockUntilMs = 3000;

export const productRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/products',
    summary: 'Products by SKU',
    role: 'shop',
    query: schemas.pageQuery,
    answers: { 200: { description: 'A page of products', schema: schemas.list(schemas.product) } },
    codes: [],
    async handle({ query, clock, role }, { db }) {
      const products = await page(query.cursor, listProducts(db, query, clock.left(readUntilMs)));
      return ok(showPage(products, (one) => showProduct(one, { withBins: role === 'operator' })));
    },
  }),
  route({
    method: 'get',
    path: '/v1/products/:sku',
    summary: 'A product; its bins for an operator',
    role: 'shop',
    query: schemas.noQuery,
    answers: { 200: { description: 'The product', schema: schemas.product } },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND'],
    async handle({ params, clock, role }, api) {
      const product = await theProduct(api, skuOf(params), clock);
      return ok(showProduct(product, { withBins: role === 'operator' }));
    },
  }),
  route({
    method: 'put',
    path: '/v1/products/:sku',
    summary: 'Create a product or change its settings',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.productBody,
    answers: {
      200: { description: 'Changed, or as it was', schema: schemas.product },
      201: { description: 'Created', schema: schemas.product, headers: ['Location'] },
    },
    codes: ['INVALID_SKU', 'INVALID_HOLD_SECONDS', 'REASON_REQUIRED', 'STOCK_LOCK_TIMEOUT'],
    async handle({ params, body, clock, actor }, api) {
      const sku = skuOf(params);
      const { reason = null, ...settings } = body;
      const outcome = await putProduct(
        api.db,
        sku,
        productSettings(settings),
        { actor, reason },
        patience(clock),
      );
      const status = statusOf(outcome, sku);
      api.db.announce({ skus: [sku] });
      const product = showProduct(await theProduct(api, sku, clock), { withBins: true });
      const location = `/v1/products/${encodeURIComponent(sku)}`;
      return { status, body: product, ...(status === 201 ? { headers: { location } } : {}) };
    },
  }),
  route({
    method: 'put',
    path: '/v1/products/:sku/bins/:code',
    summary: 'Create an empty bin or change its safety stock',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.binBody,
    answers: {
      200: { description: 'Changed, or as it was', schema: schemas.binAnswer },
      201: { description: 'Created', schema: schemas.binAnswer },
    },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND', 'REASON_REQUIRED', 'STOCK_LOCK_TIMEOUT'],
    async handle({ params, body, clock, actor }, api) {
      const sku = skuOf(params);
      const code = binOf(params);
      const { reason = null, safety_stock: safetyStock } = body;
      const bin = { sku, code, ...(safetyStock === undefined ? {} : { safetyStock }) };
      const status = statusOf(await putBin(api.db, bin, { actor, reason }, patience(clock)), sku);
      api.db.announce({ skus: [sku] });
      const { bins } = await theProduct(api, sku, clock);
      return { status, body: showBin(bins.find((one) => one.code === code)!) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/products/:sku/changes',
    summary: 'What was changed of the settings of a product and its bins, newest first',
    role: 'operator',
    query: schemas.pageQuery,
    answers: {
      200: { description: 'A page of changes', schema: schemas.list(schemas.settingChange) },
    },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND'],
    async handle({ params, query, clock }, api) {
      const sku = skuOf(params);
      await theProduct(api, sku, clock);
      const changes = await page(
        query.cursor,
        readChanges(api.db, { sku, ...query }, clock.left(readUntilMs)),
      );
      return ok(showPage(changes, showSettingChange));
    },
  }),
];

export function patience(clock: Clock) {
  return { withinMs: clock.left(changeUntilMs), lockBudgetMs: clock.left(lockUntilMs) };
}

async function theProduct({ db }: Api, sku: string, clock: Clock): Promise<Product> {
  const product = await readProduct(db, sku, clock.left());
  if (product === null) throw noProduct(sku);
  return product;
}

export function skuOf(params: Record<string, string>): string {
  return check(schemas.skuPath, { sku: params['sku'] }, 'path').sku;
}

export function binOf(params: Record<string, string>): string {
  return check(schemas.binPath, { code: params['code'] }, 'path').code;
}

function statusOf(outcome: PutOutcome, sku: string): 200 | 201 {
  switch (outcome.outcome) {
    case 'CREATED':
      return 201;
    case 'CHANGED':
    case 'UNCHANGED':
      return 200;
    case 'REASON_REQUIRED':
      throw new Problem('REASON_REQUIRED', 'A change of what exists needs a reason.');
    case 'INVALID':
      // Each field alone was checked before: what is left is how they fit together.
      if (outcome.field === 'products_hold_seconds_range') {
        const detail = 'must not be more than max_hold_seconds';
        throw new Problem('INVALID_HOLD_SECONDS', `body hold_seconds: ${detail}.`, {
          members: { errors: [{ in: 'body', field: 'hold_seconds', detail }] },
        });
      }
      throw new Problem('INVALID_REQUEST', `The settings do not fit together: ${outcome.field}.`);
    case 'NOT_FOUND':
      throw noProduct(sku);
  }
}
