import { readHold } from '../db/readHold.js';
import type { Hold } from '../db/readHold.js';
import { readOpenHold } from '../db/openHolds.js';
import type { OpenHold } from '../db/openHolds.js';
import { readRelease } from '../db/readChange.js';
import type { Line } from '../db/values.js';
import { adoptionRequest } from '../workflows/contract.js';
import type { Answers, Message, Sent } from '../workflows/contract.js';
import type { Api } from './app.js';
import { mergeLines } from './canonical.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { holdId, isOf } from './holds.js';
import { noHold, otherChange, refusalCodes, refusalProblem, tooMany } from './refusals.js';
import { ok, route } from './route.js';
import type { Call, Reply, Route } from './route.js';
import * as schemas from './schemas.js';
import { showHold } from './show.js';

/** Until then an answer of the workflow is waited for; Postgres is asked after it. */
const listenUntilMs = 3500;

/** What the shop may do with a hold that it has: the workflow does it, and Postgres is shown. */
export const holdChangeRoutes: Route[] = [
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
      ...refusalCodes,
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
      ...refusalCodes,
      'HOLD_NOT_FOUND',
      'INVALID_HOLD_SECONDS',
      'EXTENSION_LIMIT_REACHED',
      'IDEMPOTENCY_KEY_REUSED',
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
  route({
    method: 'post',
    path: '/v1/holds/:id/release',
    summary: 'Give some lines or some units of a hold back; the last one closes it',
    role: 'shop',
    query: schemas.ownerQuery,
    body: schemas.releaseBody,
    idempotencyKey: 'optional',
    answers: { 200: { description: 'Released, now or before by this key', schema: schemas.hold } },
    codes: [
      ...refusalCodes,
      'HOLD_NOT_FOUND',
      'INVALID_SKU',
      'INVALID_QUANTITY',
      'REASON_REQUIRED',
      'IDEMPOTENCY_KEY_REUSED',
      'HOLD_ALREADY_CONFIRMED',
      'HOLD_ALREADY_CANCELLED',
      'HOLD_EXPIRED',
      'STOCK_LEDGER_BUSY',
      'WORKFLOW_UNAVAILABLE',
    ],
    async handle(call, api) {
      const lines = mergeLines(call.body.lines, 'release');
      const row = await openHold(call, api);
      const { reason } = call.body;
      const requestId = call.idempotencyKey ?? call.requestId;
      const sent: Sent<Answers['release']> =
        row.status === 'HELD'
          ? await tell(call, api, row, {
              kind: 'release',
              lines,
              reason,
              actor: call.actor,
              requestId,
            })
          : { outcome: 'ENDED' };
      const hold = await present(row, api, call.clock, sent);
      if (sent.outcome === 'ANSWERED') return released(hold, sent.answer, call.body.lines);
      // Its workflow has ended, perhaps by this very release, whose answer was lost.
      const before = await readRelease(
        api.db,
        row.holdId,
        requestId,
        { lines, reason },
        call.clock.left(),
      );
      if (before === 'SAME') return ok(showHold(hold));
      if (before === 'OTHER') throw otherChange();
      throw hold.status === 'HELD' ? changing() : ended(hold);
    },
  }),
];

/** Every change begins with the row: a message starts only holds that Postgres knows. */
async function openHold(
  { params, query, clock }: Call<{ buyer_id?: string | undefined }>,
  { db }: Api,
): Promise<OpenHold & { status: string }> {
  const row = await readOpenHold(db, holdId(params), clock.left(1500));
  if (row === null || !isOf(query.buyer_id, row.buyerId)) throw noHold();
  return row;
}

function tell<Kind extends 'cancel' | 'extend' | 'release'>(
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
      case 'KEY_REUSED':
        throw otherChange();
      case 'ALREADY':
        break;
    }
  }
  if (hold.status !== 'HELD') throw ended(hold);
  throw changing();
}

function released(hold: Hold, answer: Answers['release'], asked: Line[]): Reply {
  switch (answer.outcome) {
    case 'RELEASED':
      return ok(showHold(hold));
    case 'INVALID_QUANTITY':
      throw tooMany(
        asked,
        answer.lines.map(({ held, ...line }) => ({ ...line, most: held })),
        'held',
      );
    case 'EXPIRED':
      throw new Problem('HOLD_EXPIRED', `The hold ended at ${hold.expiresAt}.`);
    case 'KEY_REUSED':
      throw otherChange();
    case 'REASON_REQUIRED':
      throw new Problem('REASON_REQUIRED', 'Say why in `reason`.');
    case 'MISSING':
      throw noHold();
    case 'PAYMENT_PENDING':
      throw new Problem('STOCK_LEDGER_BUSY', 'A payment for this hold is being confirmed.');
    case 'ALREADY':
      throw hold.status === 'HELD' ? changing() : ended(hold);
  }
}

function changing(): Problem {
  return new Problem('STOCK_LEDGER_BUSY', 'The hold is being changed.');
}

/** Why nothing can be done with a hold that has ended. */
function ended(hold: Hold): Problem {
  if (hold.refusal !== null) return refusalProblem(hold.refusal, hold.serverTime);
  switch (hold.status) {
    case 'CONFIRMED':
      return new Problem('HOLD_ALREADY_CONFIRMED', `The hold was paid at ${hold.closedAt}.`);
    case 'CANCELLED':
      return new Problem('HOLD_ALREADY_CANCELLED', `The hold was cancelled at ${hold.closedAt}.`);
    default:
      return new Problem('HOLD_EXPIRED', `The hold ended at ${hold.expiresAt}.`);
  }
}
