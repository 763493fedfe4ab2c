import { readHold } from '../db/readHold.js';
import { readMovements } from '../db/readMovements.js';
import { page } from './faults.js';
import { holdId, isOf } from './holds.js';
import { noHold } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showMovement, showPage } from './show.js';

const readUntilMs = 3000;

/** The append-only ledger, newest first. It tells the counts of bins, so it is the operator's. */
export const ledgerRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/movements',
    summary: 'The ledger of all products',
    role: 'operator',
    query: schemas.movementsQuery,
    answers: {
      200: { description: 'A page of movements', schema: schemas.list(schemas.movement) },
    },
    codes: ['INVALID_SKU'],
    async handle({ query, clock }, { db }) {
      const movements = await page(query.cursor, readMovements(db, query, clock.left(readUntilMs)));
      return ok(showPage(movements, showMovement));
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
      const filter = { holdId: id, limit, ...(cursor === undefined ? {} : { cursor }) };
      const movements = await page(cursor, readMovements(db, filter, clock.left(readUntilMs)));
      return ok(showPage(movements, showMovement));
    },
  }),
];
