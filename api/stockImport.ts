import { importStock } from '../db/importStock.js';
import { Problem } from './errors.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showRowResult } from './show.js';
import { readRows } from './stockCsv.js';
import type { Table } from './stockCsv.js';

/** A call of 10,000 rows needs 2 s for its work on a busy machine: so long may it wait for its bins. */
const lockUntilMs = 2000;

const replayed = { 'idempotent-replayed': 'true' };

/** Many changes of stock at once, all rows in one transaction (R37). */
export const stockImportRoutes: Route[] = [
  route({
    method: 'post',
    path: '/v1/stock/imports',
    summary: 'Change up to 10,000 bins at once: restock, adjust, count, safety_stock',
    role: 'operator',
    query: schemas.importQuery,
    body: schemas.importBody,
    takesCsv: true,
    bodyLimitKb: 5 * 1024,
    idempotencyKey: 'required',
    answers: {
      200: {
        description: 'One result a row; refused rows were left out',
        schema: schemas.imported,
      },
    },
    codes: [
      'IDEMPOTENCY_KEY_REQUIRED',
      'INVALID_SKU',
      'INVALID_QUANTITY',
      'REASON_REQUIRED',
      'IMPORT_REFUSED',
      'IDEMPOTENCY_KEY_REUSED',
      'STOCK_LOCK_TIMEOUT',
    ],
    async handle({ body, csv, query, clock, actor, idempotencyKey }, { db }) {
      const { rows, lines } = csv === undefined ? ofJson(body.rows) : readRows(csv, query.reason);
      const how = { dryRun: query.dry_run, allOrNothing: query.all_or_nothing };
      const outcome = await importStock(
        db,
        rows,
        { ...how, actor, requestId: idempotencyKey! },
        { withinMs: clock.left(), lockBudgetMs: clock.left(lockUntilMs) },
      );
      if (outcome.outcome === 'KEY_REUSED') {
        throw new Problem(
          'IDEMPOTENCY_KEY_REUSED',
          'This Idempotency-Key was used for another import.',
        );
      }
      const { refused } = outcome;
      if (!how.dryRun) db.announce({ skus: [...new Set(rows.map(({ sku }) => sku))] });
      const results = outcome.results.map((result, at) =>
        showRowResult(result, { ...rows[at]!, line: lines[at]! }),
      );
      if (outcome.outcome === 'REFUSED') {
        throw new Problem('IMPORT_REFUSED', `${refused} of ${rows.length} rows were refused.`, {
          members: {
            dry_run: how.dryRun,
            rows: rows.length,
            refused,
            results: results.filter((one) => one.outcome !== 'DONE'),
          },
        });
      }
      const answer = {
        dry_run: how.dryRun,
        all_or_nothing: how.allOrNothing,
        rows: rows.length,
        done: rows.length - refused,
        refused,
        results,
      };
      return { ...ok(answer), ...(outcome.replayed ? { headers: replayed } : {}) };
    },
  }),
];

function ofJson(rows: Table['rows']): Table {
  return { rows, lines: rows.map((_, at) => at + 1) };
}
