import { readOpenHold } from '../db/openHolds.js';
import { readHold } from '../db/readHold.js';
import type { Line } from '../db/values.js';
import { returnWorkflowId, sendReturn } from '../workflows/contract.js';
import type { ReturnRequest } from '../workflows/contract.js';
import { mergeLines } from './canonical.js';
import { Problem } from './errors.js';
import { holdId } from './holds.js';
import { noHold, otherChange, tooMany } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showHold, showReturnRefund } from './show.js';

/** Until then the workflow's answer is waited for. */
const listenUntilMs = 3500;

/** What was sold comes back (R09): for the operator, since stock and money move. */
export const returnRoutes: Route[] = [
  route({
    method: 'post',
    path: '/v1/holds/:id/return',
    summary: 'Take back what was sold, all or some of it, and send its money back',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.returnBody,
    idempotencyKey: 'optional',
    answers: {
      200: {
        description:
          'Returned, now or before by this key. A repeat asks the provider again for a refund that it had refused.',
        schema: schemas.returned,
      },
    },
    codes: [
      'HOLD_NOT_FOUND',
      'HOLD_NOT_CONFIRMED',
      'ALREADY_RETURNED',
      'INVALID_SKU',
      'INVALID_QUANTITY',
      'INVALID_REFUND',
      'REASON_REQUIRED',
      'IDEMPOTENCY_KEY_REUSED',
      'WORKFLOW_UNAVAILABLE',
    ],
    async handle({ params, body, clock, actor, idempotencyKey, requestId }, { db, holds }) {
      const id = holdId(params);
      if ((await readOpenHold(db, id, clock.left(1500))) === null) throw noHold();
      const request: ReturnRequest = {
        holdId: id,
        lines: body.lines === undefined ? null : mergeLines(body.lines, 'return'),
        reason: body.reason,
        actor,
        requestId: idempotencyKey ?? requestId,
        restock: body.restock,
        refundMinor: body.refund_minor ?? null,
      };
      const sent = await sendReturn(holds, request, { withinMs: clock.left(listenUntilMs) });
      const { lines, restock, refund, noRefund } = done(sent, body.lines ?? []);
      const hold = await readHold(db, id, clock.left());
      if (hold === null) throw noHold();
      return ok({
        hold: showHold(hold),
        lines,
        restock,
        refund: refund && showReturnRefund(refund),
        no_refund: noRefund,
        workflow_id: returnWorkflowId(id, request.requestId),
      });
    },
  }),
];

/** The return as it was carried out, or why it was not. */
function done(sent: Awaited<ReturnType<typeof sendReturn>>, asked: Line[]) {
  if (sent.outcome !== 'ANSWERED') {
    throw new Problem(
      'WORKFLOW_UNAVAILABLE',
      'The return was not carried out in time; it may be still.',
      { retryAfterSeconds: 2 },
    );
  }
  const { answer } = sent;
  switch (answer.outcome) {
    case 'RETURNED':
      return answer;
    case 'NOT_CONFIRMED':
      throw new Problem(
        'HOLD_NOT_CONFIRMED',
        `The hold is ${answer.status}: nothing of it was sold.`,
        { members: { hold_status: answer.status } },
      );
    case 'ALREADY_RETURNED':
      throw new Problem('ALREADY_RETURNED', 'Everything that was sold has come back before.');
    case 'INVALID_QUANTITY':
      throw tooMany(
        asked,
        answer.lines.map(({ sold, ...line }) => ({ ...line, most: sold })),
        'sold and not returned',
      );
    case 'REFUND_REQUIRED':
      throw invalidRefund(
        'must be given: this hold has no prices that say what a part of it is worth',
        answer,
      );
    case 'REFUND_TOO_LARGE':
      throw invalidRefund(
        `of ${answer.amountMinor} is more than is left of the payment, ${answer.leftMinor}`,
        answer,
      );
    case 'KEY_REUSED':
      throw otherChange();
    case 'REASON_REQUIRED':
      throw new Problem('REASON_REQUIRED', 'Say why in `reason`.');
    case 'MISSING':
      throw noHold();
  }
}

function invalidRefund(
  detail: string,
  { leftMinor, currency }: { leftMinor: number; currency: string },
): Problem {
  return new Problem('INVALID_REFUND', `refund_minor ${detail} (${currency}).`, {
    members: {
      left_minor: leftMinor,
      currency,
      errors: [{ in: 'body', field: 'refund_minor', detail }],
    },
  });
}
