import { listPayments, listUnmatchedEvents, readPayment } from '../db/readPayment.js';
import { sendDecision } from '../workflows/contract.js';
import { Problem } from './errors.js';
import { page } from './faults.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showPage, showPaymentRecord, showUnmatchedEvent } from './show.js';

const readUntilMs = 3000;
/** Until then the settlement's answer is waited for; Postgres is asked after it. */
const listenUntilMs = 3500;

/** What became of the money: for the operator, who also decides where the product's policy is `review`. */
export const settlementRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/payments',
    summary: 'Payments with their settlements and refunds, newest first',
    role: 'operator',
    query: schemas.paymentsQuery,
    answers: {
      200: { description: 'A page of payments', schema: schemas.list(schemas.paymentRecord) },
    },
    codes: [],
    async handle({ query, clock }, { db }) {
      const payments = await page(query.cursor, listPayments(db, query, clock.left(readUntilMs)));
      return ok(showPage(payments, showPaymentRecord));
    },
  }),
  route({
    method: 'get',
    path: '/v1/payments/unmatched',
    summary: 'Payment events that named no hold that is there, newest first',
    role: 'operator',
    query: schemas.pageQuery,
    answers: {
      200: { description: 'A page of events', schema: schemas.list(schemas.unmatchedEvent) },
    },
    codes: [],
    async handle({ query, clock }, { db }) {
      const found = listUnmatchedEvents(db, query, clock.left(readUntilMs));
      return ok(showPage(await page(query.cursor, found), showUnmatchedEvent));
    },
  }),
  route({
    method: 'get',
    path: '/v1/payments/:provider/:payment_id',
    summary: 'One payment with its settlement, its refunds and its events',
    role: 'operator',
    query: schemas.noQuery,
    answers: { 200: { description: 'The payment', schema: schemas.paymentRecord } },
    codes: ['PAYMENT_NOT_FOUND'],
    async handle({ params, clock }, { db }) {
      const payment = await readPayment(db, refOf(params), clock.left(readUntilMs));
      if (payment === null) throw noPayment();
      return ok(showPaymentRecord(payment));
    },
  }),
  route({
    method: 'post',
    path: '/v1/payments/:provider/:payment_id/decision',
    summary: 'Accept or refund a payment that needs a review',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.decisionBody,
    idempotencyKey: 'optional',
    answers: {
      200: { description: 'Decided, now or before by this key', schema: schemas.paymentRecord },
    },
    codes: [
      'PAYMENT_NOT_FOUND',
      'PAYMENT_NOT_IN_REVIEW',
      'PAYMENT_NOT_ACCEPTABLE',
      'INSUFFICIENT_STOCK',
      'BUYER_LIMIT_EXCEEDED',
      'REASON_REQUIRED',
      'IDEMPOTENCY_KEY_REUSED',
      'STOCK_LEDGER_BUSY',
      'WORKFLOW_UNAVAILABLE',
    ],
    async handle({ params, body, clock, actor, idempotencyKey, requestId }, { db, holds }) {
      const ref = refOf(params);
      const payment = await readPayment(db, ref, clock.left(1500));
      if (payment === null) throw noPayment();
      const request = { ...body, actor, requestId: idempotencyKey ?? requestId };
      const withinMs = clock.left(listenUntilMs);
      const sent = await sendDecision(holds, payment.holdId, ref, request, { withinMs });
      const refused = refusalOf(sent);
      if (refused) throw refused;
      const decided = await readPayment(db, ref, clock.left());
      if (decided === null) throw noPayment();
      return ok(showPaymentRecord(decided));
    },
  }),
];

function refOf(params: Record<string, string>) {
  return { provider: params['provider']!, paymentId: params['payment_id']! };
}

function noPayment(): Problem {
  return new Problem('PAYMENT_NOT_FOUND', 'There is no such payment.');
}

/** Why a decision was not carried out; undefined when it was. */
function refusalOf(sent: Awaited<ReturnType<typeof sendDecision>>): Problem | undefined {
  if (sent.outcome !== 'ANSWERED') {
    return new Problem(
      'WORKFLOW_UNAVAILABLE',
      'The decision was not carried out in time; it may be still.',
      { retryAfterSeconds: 2 },
    );
  }
  const { answer } = sent;
  switch (answer.outcome) {
    case 'ACCEPTED_LATE':
    case 'REFUND_DUE':
    case 'REFUNDED':
      return undefined;
    case 'ALREADY':
      return new Problem(
        'PAYMENT_NOT_IN_REVIEW',
        `The payment is ${answer.settlement ?? 'not settled yet'}: there is nothing to decide.`,
        { members: { settlement: answer.settlement } },
      );
    case 'INSUFFICIENT_STOCK':
      return new Problem(
        'INSUFFICIENT_STOCK',
        'The units of this hold are not free any more. The payment stays in review.',
      );
    case 'BUYER_LIMIT':
      return new Problem(
        'BUYER_LIMIT_EXCEEDED',
        `The buyer has as many of ${answer.sku} as allowed. The payment stays in review.`,
        { members: { sku: answer.sku } },
      );
    case 'MISMATCH':
      return new Problem(
        'PAYMENT_NOT_ACCEPTABLE',
        'The amount is not the total of the order: it can only be refunded.',
      );
    case 'HOLD_CLOSED':
      return new Problem(
        'PAYMENT_NOT_ACCEPTABLE',
        `The hold is ${answer.status}: the payment can only be refunded.`,
      );
    case 'PAYMENT_PENDING':
      return new Problem(
        'STOCK_LEDGER_BUSY',
        'Another payment for this hold, in time, is being confirmed.',
      );
    case 'KEY_REUSED':
      return new Problem(
        'IDEMPOTENCY_KEY_REUSED',
        'This Idempotency-Key was used for another decision about this payment.',
      );
    case 'REASON_REQUIRED':
      return new Problem('REASON_REQUIRED', 'Say why in `reason`.');
    case 'MISSING':
      return noPayment();
  }
}
