import { listHolds, readHold, readOrder } from '../db/readHold.js';
import type { Hold } from '../db/readHold.js';
import { readOpenHold } from '../db/openHolds.js';
import type { OpenHold } from '../db/openHolds.js';
import { adoptionRequest } from '../workflows/contract.js';
import type { Answers, Message, Sent } from '../workflows/contract.js';
import type { Api } from './app.js';
import { checkout } from './checkout.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { page } from './faults.js';
import { ok, route } from './route.js';
import type { Call, Reply, Route } from './route.js';
import * as schemas from './schemas.js';
import { refusalProblem, showHold, showOrder, showPage } from './show.js';

/** A refused hold is refused again, whatever is asked of it. */
const refusals = [
  'INSUFFICIENT_STOCK',
  'BUYER_LIMIT_EXCEEDED',
  'PRODUCT_INACTIVE',
  'MIXED_CURRENCIES',
] as const;

const checkoutCodes = [
  ...refusals,
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
/** Until then an answer of the workflow is waited for; Postgres is asked after it. */
const listenUntilMs = 3500;

export const holdRoutes: Route[] = [
  route({
    method: 'post',
    path: '/v1/holds',
    summary: 'Hold units for a buyer, for a limited time',
    role: 'shop',
    query: schemas.noQuery,
    body: schemas.checkoutBody,
    idempotencyKey: 'required',
    answers: {
      201: { description: 'Held', schema: schemas.hold, headers: ['Location'] },
      200: {
        description: 'This key was used before: the hold in its present state',
        schema: schemas.hold,
        headers: ['Location', 'Idempotent-Replayed'],
      },
      202: {
        description: 'Not known yet: repeat the POST with the same key',
        schema: schemas.claiming,
        headers: ['Location', 'Retry-After'],
      },
    },
    codes: [...checkoutCodes],
    handle: (call, api) => checkout(call, api, 'hold'),
  }),
  route({
    method: 'post',
    path: '/v1/orders',
    summary: 'Place an order: a hold with an order number and the prices of this moment',
    role: 'shop',
    query: schemas.noQuery,
    body: schemas.checkoutBody,
    idempotencyKey: 'required',
    answers: {
      201: { description: 'Placed and held', schema: schemas.order, headers: ['Location'] },
      200: {
        description: 'This key was used before: the order in its present state',
        schema: schemas.order,
        headers: ['Location', 'Idempotent-Replayed'],
      },
      202: {
        description: 'Not known yet: repeat the POST with the same key',
        schema: schemas.claiming,
        headers: ['Location', 'Retry-After'],
      },
    },
    codes: [...checkoutCodes],
    handle: (call, api) => checkout(call, api, 'order'),
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
      const number = params['number']!;
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
  route({
    method: 'post',
    path: '/v1/holds/:id/cancel',
    summary: 'Give the units of a hold back',
    role: 'shop',
    query: schemas.ownerQuery,
    body: schemas.cancelBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Cancelled, now or before', schema: schemas.hold } },
    codes: [
      ...refusals,
      'HOLD_NOT_FOUND',
      'REASON_REQUIRED',
      'HOLD_ALREADY_CONFIRMED',
      'HOLD_EXPIRED',
      'STOCK_LEDGER_BUSY',
      'WORKFLOW_UNAVAILABLE',
    ],
    async handle(call, api) {
      const row = await openHold(call, api);
      if (row.status === 'HELD') {
        const sent = await tell(call, api, row, {
          kind: 'cancel',
          reason: call.body.reason,
          actor: call.actor,
          requestId: call.idempotencyKey ?? call.requestId,
        });
        return cancelled(await present(row, api, call.clock, sent), sent);
      }
      return cancelled(await present(row, api, call.clock));
    },
  }),
  route({
    method: 'post',
    path: '/v1/holds/:id/extend',
    summary: 'Move the end of a hold',
    role: 'shop',
    query: schemas.ownerQuery,
    body: schemas.extendBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Extended', schema: schemas.hold } },
    codes: [
      ...refusals,
      'HOLD_NOT_FOUND',
      'INVALID_HOLD_SECONDS',
      'EXTENSION_LIMIT_REACHED',
      'HOLD_ALREADY_CONFIRMED',
      'HOLD_ALREADY_CANCELLED',
      'HOLD_EXPIRED',
      'STOCK_LEDGER_BUSY',
      'WORKFLOW_UNAVAILABLE',
    ],
    async handle(call, api) {
      const row = await openHold(call, api);
      if (row.status !== 'HELD') throw ended(await present(row, api, call.clock));
      const sent = await tell(call, api, row, {
        kind: 'extend',
        seconds: call.body.seconds,
        actor: call.actor,
        requestId: call.idempotencyKey ?? call.requestId,
      });
      return extended(await present(row, api, call.clock, sent), sent);
    },
  }),
];

/** Cancel and extend begin with the row: a message starts only holds that Postgres knows. */
async function openHold(
  { params, query, clock }: Call<{ buyer_id?: string | undefined }>,
  { db }: Api,
): Promise<OpenHold & { status: string }> {
  const row = await readOpenHold(db, holdId(params), clock.left(1500));
  if (row === null || !isOf(query.buyer_id, row.buyerId)) throw noHold();
  return row;
}

function tell<Kind extends 'cancel' | 'extend'>(
  { clock }: Call,
  { holds, send }: Api,
  row: OpenHold,
  message: Extract<Message, { kind: Kind }>,
): Promise<Sent<Answers[Kind]>> {
  const request = adoptionRequest(row, { indexed: holds.indexed });
  return send<Kind>(holds, request, message, { withinMs: clock.left(listenUntilMs) });
}

/** What Postgres says after the message: it decides, whatever was answered. */
async function present(
  { holdId }: OpenHold,
  { db }: Api,
  clock: Clock,
  sent?: Sent<unknown>,
): Promise<Hold> {
  const hold = await readHold(db, holdId, clock.left());
  if (hold === null) throw noHold();
  if (
    hold.status === 'HELD' &&
    (sent?.outcome === 'NO_ANSWER' || sent?.outcome === 'UNAVAILABLE')
  ) {
    throw new Problem(
      'WORKFLOW_UNAVAILABLE',
      sent.outcome === 'NO_ANSWER'
        ? 'The request was not decided in time; it may be carried out still.'
        : 'Temporal can not be reached; the hold is unchanged until it is.',
      { retryAfterSeconds: 2 },
    );
  }
  return hold;
}

/** 200 for a cancelled hold, however often it is asked; of a paid one it is a return. */
function cancelled(hold: Hold, sent?: Sent<Answers['cancel']>): Reply {
  if (hold.status === 'CANCELLED') return ok(showHold(hold));
  if (hold.status !== 'HELD') throw ended(hold);
  // An in-time payment is being confirmed, or the answer is older than what Postgres shows.
  const pending = sent?.outcome === 'ANSWERED' && sent.answer.outcome === 'PAYMENT_PENDING';
  throw new Problem(
    'STOCK_LEDGER_BUSY',
    pending ? 'A payment for this hold is being confirmed.' : 'The hold is being changed.',
  );
}

function extended(hold: Hold, sent: Sent<Answers['extend']>): Reply {
  if (sent.outcome === 'ANSWERED') {
    switch (sent.answer.outcome) {
      case 'EXTENDED':
        return ok(showHold(hold));
      case 'LIMIT': {
        const { largestSeconds, maxExtensions } = sent.answer;
        throw new Problem(
          'EXTENSION_LIMIT_REACHED',
          largestSeconds > 0
            ? `This hold can be extended by at most ${largestSeconds} seconds.`
            : `This hold can not be extended any more (at most ${maxExtensions} times, and never past its longest time).`,
          { members: { largest_seconds: largestSeconds, max_extensions: maxExtensions } },
        );
      }
      case 'EXPIRED':
        throw new Problem('HOLD_EXPIRED', `The hold ended at ${hold.expiresAt}.`);
      case 'MISSING':
        throw noHold();
      case 'ALREADY':
        break;
    }
  }
  if (hold.status !== 'HELD') throw ended(hold);
  throw new Problem('STOCK_LEDGER_BUSY', 'The hold is being changed.');
}

/** Why nothing can be done with a hold that has ended. */
function ended(hold: Hold): Problem {
  if (hold.refusal !== null) return refusalProblem(hold.refusal);
  switch (hold.status) {
    case 'CONFIRMED':
      return new Problem('HOLD_ALREADY_CONFIRMED', `The hold was paid at ${hold.closedAt}.`);
    case 'CANCELLED':
      return new Problem('HOLD_ALREADY_CANCELLED', `The hold was cancelled at ${hold.closedAt}.`);
    default:
      return new Problem('HOLD_EXPIRED', `The hold ended at ${hold.expiresAt}.`);
  }
}

/** Something that is no uuid is no hold's id: the same answer as for one that is not there. */
export function holdId(params: Record<string, string>): string {
  const id = params['id']!;
  if (!isHoldId(id)) throw noHold();
  return id.toLowerCase();
}

export function isHoldId(id: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id);
}

/** Whether it is this buyer's, when one is named: "not yours" and "not there" are the same (S6). */
export function isOf(asked: string | undefined, buyerId: string): boolean {
  return asked === undefined || asked === buyerId;
}

export function noHold(): Problem {
  return new Problem('HOLD_NOT_FOUND', 'There is no such hold.');
}
