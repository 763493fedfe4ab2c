import { readHold } from '../db/readHold.js';
import { readMovements } from '../db/readMovements.js';
import { readStatement } from '../db/readStatement.js';
import { asksCsv, csvText, nextPage } from './csv.js';
import type { Cell } from './csv.js';
import { Problem } from './errors.js';
import { page } from './faults.js';
import { holdId, isOf } from './holds.js';
import { skuOf } from './products.js';
import { noBin, noHold, noProduct } from './refusals.js';
import { csv, ok, route } from './route.js';
import type { Call, Route } from './route.js';
import * as schemas from './schemas.js';
import { showMovement, showPage, showStatement } from './show.js';

const readUntilMs = 3000;

type ShownMovement = ReturnType<typeof showMovement>;

/** The append-only ledger. It tells the counts of bins, so it is the operator's (R31). */
export const ledgerRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/movements',
    summary:
      'The ledger of all products, newest first; as CSV a Link header names the next page. A walk through the pages shows each movement once that was there when it began; a bin has no hole in its bin_version',
    role: 'operator',
    query: schemas.movementsQuery,
    answers: {
      200: {
        description: 'A page of movements',
        schema: schemas.list(schemas.movement),
        alsoAs: ['text/csv'],
      },
    },
    codes: ['INVALID_SKU'],
    async handle(call, { db }) {
      const { query, clock } = call;
      const { hold_id: holdId, order: orderNumber, ...rest } = query;
      const filter = { ...rest, holdId, orderNumber, limit: limitOf(call) };
      const movements = await page(
        query.cursor,
        readMovements(db, filter, clock.left(readUntilMs)),
      );
      const shown = showPage(movements, showMovement);
      if (!asksCsv(call)) return ok(shown);
      return csv(
        csvText(columns, shown.items.map(cells)),
        nextPage('/v1/movements', query, shown.next_cursor),
      );
    },
  }),
  route({
    method: 'get',
    path: '/v1/holds/:id/movements',
    summary: 'The ledger of one hold',
    role: 'operator',
    query: schemas.holdMovementsQuery,
    answers: {
      200: { description: 'A page of movements', schema: schemas.list(schemas.movement) },
    },
    codes: ['HOLD_NOT_FOUND'],
    async handle({ params, query, clock }, { db }) {
      const id = holdId(params);
      const hold = await readHold(db, id, clock.left(readUntilMs));
      if (hold === null || !isOf(query.buyer_id, hold.buyerId)) throw noHold();
      const { cursor, limit } = query;
      const filter = { holdId: id, limit, cursor };
      const movements = await page(cursor, readMovements(db, filter, clock.left(readUntilMs)));
      return ok(showPage(movements, showMovement));
    },
  }),
  route({
    method: 'get',
    path: '/v1/products/:sku/statement',
    summary:
      "A product's account of a period: opening counts, every movement by bin and bin_version, closing counts; each page opens with what the one before closed with. A period begins and ends in each bin by bin_version: a clock that was put back moves nothing into an earlier one",
    role: 'operator',
    query: schemas.statementQuery,
    answers: {
      200: {
        description: 'A page of the statement',
        schema: schemas.statement,
        alsoAs: ['text/csv'],
      },
    },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND', 'BIN_NOT_FOUND'],
    async handle(call, { db }) {
      const { params, query, clock } = call;
      const sku = skuOf(params);
      const filter = { ...query, sku, limit: limitOf(call) };
      const found = await page(query.cursor, readStatement(db, filter, clock.left(readUntilMs)));
      if (found === 'NO_PRODUCT') throw noProduct(sku);
      if (found === 'NO_BIN') throw noBin(sku, query.bin!);
      const shown = showStatement(found, query);
      if (!asksCsv(call)) return ok(shown);
      const path = `/v1/products/${encodeURIComponent(sku)}/statement`;
      return csv(csvText(columns, statementRows(shown)), nextPage(path, query, shown.next_cursor));
    },
  }),
];

/** CSV may be longer than JSON: its limit depends on what the caller takes. */
function limitOf(call: Call<{ limit?: number | undefined }>): number {
  const { usual, most } = schemas.ledgerLimits[asksCsv(call) ? 'csv' : 'json'];
  const { limit = usual } = call.query;
  if (limit <= most) return limit;
  const detail = `must be a number from 1 to ${most}`;
  throw new Problem('INVALID_REQUEST', `query limit: ${detail}.`, {
    members: { errors: [{ in: 'query', field: 'limit', detail }] },
  });
}

const columns = [
  ...['created_at', 'sku', 'bin', 'bin_version', 'type', 'quantity'],
  ...['from_available', 'from_held', 'from_sold', 'to_available', 'to_held', 'to_sold'],
  ...['reason', 'actor', 'hold_id', 'order_number', 'request_id', 'metadata', 'id'],
];

function cells(one: ShownMovement): Cell[] {
  const { from, to, metadata } = one;
  return [
    ...[one.created_at, one.sku, one.bin, one.bin_version, one.type, one.quantity],
    ...[from.available, from.held, from.sold, to.available, to.held, to.sold],
    ...[one.reason, one.actor, one.hold_id, one.order_number, one.request_id],
    Object.keys(metadata).length === 0 ? null : JSON.stringify(metadata),
    one.id,
  ];
}

/** As a bank prints it: what was there, what happened, what is there now; the product's lines name no bin. */
function statementRows(shown: ReturnType<typeof showStatement>): Cell[][] {
  const line = (
    type: 'opening' | 'closing',
    { available, held, sold }: typeof shown.opening,
    bin: string | null = null,
    version: number | null = null,
  ): Cell[] => {
    const counts = [available, held, sold];
    const time = type === 'opening' ? shown.from : (shown.to ?? shown.as_of);
    const rest = Array<null>(columns.length - 12).fill(null);
    return [time, shown.sku, bin, version, type, null, ...counts, ...counts, ...rest];
  };
  return [
    line('opening', shown.opening),
    ...shown.bins.flatMap(({ code, opening, closing }) => [
      line('opening', opening, code, opening.version),
      ...shown.items.filter(({ bin }) => bin === code).map(cells),
      line('closing', closing, code, closing.version),
    ]),
    line('closing', shown.closing),
  ];
}
