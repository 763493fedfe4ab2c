import { randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { adjust } from '../db/adjust.js';
import { count } from '../db/count.js';
import { move } from '../db/move.js';
import type { MoveOutcome } from '../db/move.js';
import { readStock } from '../db/readStock.js';
import type { Database } from '../db/database.js';
import { restock } from '../db/restock.js';
import type { StockOutcome } from '../db/stock.js';
import type { Counts } from '../db/values.js';
import { asksCsv, nextPage } from './csv.js';
import { Problem } from './errors.js';
import { page } from './faults.js';
import { binOf, patience, skuOf } from './products.js';
import { noBin, noProduct } from './refusals.js';
import { csv, ok, route } from './route.js';
import type { Call, Reply, Route } from './route.js';
import * as schemas from './schemas.js';
import { showPage, showStockedBin } from './show.js';
import { writeStock } from './stockCsv.js';

/** After the arrival. */
const readUntilMs = 3000;

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
    summary: 'Correct the available units, by a difference or by a count',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.adjustmentBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Corrected', schema: schemas.stockChanged } },
    codes: [...stockCodes(), 'INSUFFICIENT_STOCK', 'STOCK_CHANGED'],
    async handle(call, { db }) {
      const change = stockChange(call);
      const { delta, counted = 0, expected = 0 } = call.body;
      const outcome =
        delta === undefined
          ? await count(db, { ...change, counted, expected }, patience(call.clock))
          : await adjust(db, { ...change, delta }, patience(call.clock));
      return stocked(db, outcome, change, delta === undefined ? expected - counted : -delta);
    },
  }),
  route({
    method: 'post',
    path: '/v1/products/:sku/bins/:code/move',
    summary: 'Move available units to another bin of the product',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.moveBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Moved', schema: schemas.stockMoved } },
    codes: [...stockCodes(), 'INSUFFICIENT_STOCK', 'SAME_BIN'],
    async handle(call, { db }) {
      const { to, quantity } = call.body;
      const change = { ...stockChange(call), to, quantity };
      return moved(db, await move(db, change, patience(call.clock)), change);
    },
  }),
  route({
    method: 'get',
    path: '/v1/stock',
    summary: 'Every bin with its counts; as CSV in the columns that an import takes',
    role: 'operator',
    query: schemas.stockQuery,
    answers: {
      200: {
        description:
          'A page of bins. The next page of a CSV is named by the header `Link`, rel="next".',
        schema: schemas.list(schemas.stockedBin),
        alsoAs: ['text/csv'],
      },
    },
    codes: [],
    async handle(call, { db }) {
      const { query, clock } = call;
      const bins = await page(query.cursor, readStock(db, query, clock.left(readUntilMs)));
      const shown = showPage(bins, showStockedBin);
      if (!asksCsv(call)) return ok(shown);
      return csv(writeStock(shown.items), nextPage('/v1/stock', query, shown.next_cursor));
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
    case 'DONE':
      db.announce({ skus: [sku] });
      return ok(shownBin(sku, { bin, ...outcome }));
    case 'INSUFFICIENT_STOCK':
      throw tooFew(sku, bin, taken, outcome.available);
    case 'STOCK_CHANGED': {
      const { available, held } = outcome.counts;
      const onHand = available + held;
      throw new Problem(
        'STOCK_CHANGED',
        `Nothing was changed: ${onHand} units are in bin ${bin}, ${available} available and ${held} held, and not what was expected.`,
        { members: { available, held, on_hand: onHand } },
      );
    }
    case 'INVALID_QUANTITY':
    case 'REASON_REQUIRED':
    case 'KEY_REUSED':
      throw unfit(outcome.outcome);
    case 'NOT_FOUND':
      throw outcome.what === 'product' ? noProduct(sku) : noBin(sku, bin);
  }
}

function moved(
  db: Database,
  outcome: MoveOutcome,
  { sku, bin, quantity }: { sku: string; bin: string; quantity: number },
): Reply {
  switch (outcome.outcome) {
    case 'DONE':
      db.announce({ skus: [sku] });
      return ok({ sku, from: shownBin(sku, outcome.from), to: shownBin(sku, outcome.to) });
    case 'INSUFFICIENT_STOCK':
      throw tooFew(sku, bin, quantity, outcome.available);
    case 'SAME_BIN':
      throw new Problem('SAME_BIN', `${bin} is where the units are.`);
    case 'INVALID_QUANTITY':
    case 'REASON_REQUIRED':
    case 'KEY_REUSED':
      throw unfit(outcome.outcome);
    case 'NOT_FOUND':
      throw outcome.what === 'product' ? noProduct(sku) : noBin(sku, outcome.bin);
  }
}

function shownBin(
  sku: string,
  { bin, counts, safetyStock, version }: BinLeft,
): z.infer<typeof schemas.stockChanged> {
  return { sku, bin, ...counts, safety_stock: safetyStock, version };
}

interface BinLeft {
  bin: string;
  counts: Counts;
  safetyStock: number;
  version: number;
}

function tooFew(sku: string, bin: string, requested: number, available: number): Problem {
  return new Problem(
    'INSUFFICIENT_STOCK',
    `Nothing was changed: bin ${bin} has ${available} available units, ${requested} were to leave it; what is held or sold is not touched.`,
    { members: { shortfalls: [{ sku, requested, available }] } },
  );
}

function unfit(outcome: 'INVALID_QUANTITY' | 'REASON_REQUIRED' | 'KEY_REUSED'): Problem {
  switch (outcome) {
    case 'INVALID_QUANTITY':
      return new Problem('INVALID_QUANTITY', 'A bin holds at most 2,000,000,000 units.');
    case 'REASON_REQUIRED':
      return new Problem('REASON_REQUIRED', 'A change of stock needs a reason.');
    case 'KEY_REUSED':
      return new Problem(
        'IDEMPOTENCY_KEY_REUSED',
        'This Idempotency-Key was used for another change of this bin.',
      );
  }
}
