import { randomUUID } from 'node:crypto';
import { adjust } from '../db/adjust.js';
import type { Database } from '../db/database.js';
import { restock } from '../db/restock.js';
import type { StockOutcome } from '../db/stock.js';
import { Problem } from './errors.js';
import { binOf, patience, skuOf } from './products.js';
import { noBin, noProduct } from './refusals.js';
import { ok, route } from './route.js';
import type { Call, Reply, Route } from './route.js';
import * as schemas from './schemas.js';

/** Changes of what is available: the operator's, with a reason, each counted once (R37, R39). */
export const stockRoutes: Route[] = [
  route({
    method: 'post',
    path: '/v1/products/:sku/bins/:code/restock',
    summary: 'Add units that arrived',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.restockBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Added', schema: schemas.stockChanged } },
    codes: stockCodes(),
    async handle(call, { db }) {
      const change = { ...stockChange(call), quantity: call.body.quantity };
      const outcome = await restock(db, change, patience(call.clock));
      return stocked(db, outcome, change, change.quantity);
    },
  }),
  route({
    method: 'post',
    path: '/v1/products/:sku/bins/:code/adjustments',
    summary: 'Correct the available units',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.adjustmentBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Corrected', schema: schemas.stockChanged } },
    codes: [...stockCodes(), 'INSUFFICIENT_STOCK'],
    async handle(call, { db }) {
      const change = { ...stockChange(call), delta: call.body.delta };
      const outcome = await adjust(db, change, patience(call.clock));
      return stocked(db, outcome, change, -change.delta);
    },
  }),
];

function stockCodes() {
  return [
    'INVALID_SKU',
    'INVALID_QUANTITY',
    'REASON_REQUIRED',
    'IDEMPOTENCY_KEY_REUSED',
    'PRODUCT_NOT_FOUND',
    'BIN_NOT_FOUND',
    'STOCK_LOCK_TIMEOUT',
  ] as const satisfies Route['codes'];
}

function stockChange(call: Call<unknown, { reason: string; reference?: string | undefined }>) {
  return {
    sku: skuOf(call.params),
    bin: binOf(call.params),
    reason: call.body.reason,
    actor: call.actor,
    requestId: call.idempotencyKey ?? randomUUID(),
    reference: call.body.reference ?? null,
  };
}

/** @param taken how many units were to leave the available ones */
function stocked(
  db: Database,
  outcome: StockOutcome,
  { sku, bin }: { sku: string; bin: string },
  taken: number,
): Reply {
  switch (outcome.outcome) {
    case 'DONE': {
      db.announce({ skus: [sku] });
      const { counts, version, safetyStock } = outcome;
      return ok({ sku, bin, ...counts, safety_stock: safetyStock, version });
    }
    case 'INSUFFICIENT_STOCK':
      throw new Problem(
        'INSUFFICIENT_STOCK',
        `Nothing was changed: bin ${bin} has ${outcome.available} available units, ${taken} were to leave it; what is held or sold is not touched.`,
        { members: { shortfalls: [{ sku, requested: taken, available: outcome.available }] } },
      );
    case 'INVALID_QUANTITY':
      throw new Problem('INVALID_QUANTITY', 'A bin holds at most 2,000,000,000 units.');
    case 'REASON_REQUIRED':
      throw new Problem('REASON_REQUIRED', 'A change of stock needs a reason.');
    case 'KEY_REUSED':
      throw new Problem(
        'IDEMPOTENCY_KEY_REUSED',
        'This Idempotency-Key was used for another change of this bin.',
      );
    case 'NOT_FOUND':
      if (outcome.what === 'product') throw noProduct(sku);
      throw noBin(sku, bin);
  }
}
