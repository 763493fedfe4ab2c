import { Webhook } from 'standardwebhooks';
import { readOpenHold } from '../db/openHolds.js';
import { recordPayment } from '../db/recordPayment.js';
import type { PaymentEvent, RecordPaymentOutcome } from '../db/recordPayment.js';
import { storeEvent } from '../db/storeEvent.js';
import { adoptionRequest } from '../workflows/contract.js';
import type { Api } from './app.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { check, parseJson } from './faults.js';
import { theOne } from './headers.js';
import { noHold } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { stripeEvent } from './stripe.js';

/** All after the arrival: the event is stored, and then Temporal has the rest of the time. */
const storeUntilMs = 2500;
const lockUntilMs = 2000;
/** With the whole 4.7 s, a hanging Temporal and a busy machine were seen to make it 4.9. */
const passOnUntilMs = 4300;

/** What a sender hears, whoever signs: 200, or why it must send the event again. */
const told: Pick<Route, 'answers' | 'codes'> = {
  answers: {
    200: { description: 'Stored and passed on; do not repeat', schema: schemas.paymentAnswer },
  },
  codes: [
    'HOLD_NOT_FOUND',
    'ORDER_NOT_FOUND',
    'PAYMENT_OF_OTHER_HOLD',
    'STOCK_LEDGER_BUSY',
    'WORKFLOW_UNAVAILABLE',
  ],
};

export const paymentRoutes: Route[] = [
  route({
    method: 'post',
    path: '/v1/payments/events',
    summary: 'A payment event, signed by Standard Webhooks',
    role: 'signed',
    signature: ['webhook-id', 'webhook-timestamp', 'webhook-signature'],
    query: schemas.noQuery,
    body: schemas.paymentEvent,
    ...told,
    async handle({ raw, rawHeaders, clock }, api) {
      const eventId = verify(raw!, rawHeaders, api.settings.webhookSecrets);
      const payload = parseJson(raw!);
      const { type } = check(schemas.anyEvent, payload, 'body');
      // Kept for the operator; a sender that is told 4xx would repeat them for days.
      if (!known.has(type)) {
        const event = { provider: 'default', eventId, paymentId: null, type, payload };
        await storeEvent(api.db, event, clock.left(storeUntilMs));
        return ok({ outcome: 'IGNORED', hold_id: null });
      }
      const { data } = check(schemas.paymentEvent, payload, 'body');
      return receive(
        {
          provider: data.provider,
          paymentId: data.payment_id,
          eventId,
          status: type.slice('payment.'.length) as PaymentEvent['status'],
          holdId: data.hold_id?.toLowerCase() ?? null,
          orderNumber: data.order_number ?? null,
          amountMinor: data.amount_minor,
          currency: data.currency,
          payload,
        },
        api,
        clock,
      );
    },
  }),
  route({
    method: 'post',
    path: '/v1/payments/stripe/events',
    summary: 'A payment event of Stripe, with its Stripe-Signature',
    role: 'signed',
    signature: ['stripe-signature'],
    query: schemas.noQuery,
    body: schemas.anyEvent,
    ...told,
    async handle({ raw, rawHeaders, clock }, api) {
      const header = theOne({ rawHeaders }, 'stripe-signature', 'SIGNATURE_INVALID');
      const heard = stripeEvent(raw!, header, api.settings.stripeWebhookSecrets, toleranceSeconds);
      // Money of another program on the same account, or nothing that we act on: Stripe keeps it.
      if (heard.outcome !== 'PAYMENT') return ok({ outcome: 'IGNORED', hold_id: null });
      return receive(heard.event, api, clock);
    },
  }),
];

/** As Standard Webhooks has it, both ways. */
const toleranceSeconds = 300;

type Recorded = Extract<RecordPaymentOutcome, { outcome: 'RECORDED' | 'DUPLICATE' }>;

const known = new Set(['payment.succeeded', 'payment.failed', 'payment.refunded']);

/**
 * 200 means "I own it now": the event is stored in Postgres, and Temporal has the payment where a
 * hold or a settlement waits for it. A repeat passes on again what was stored but not passed on
 * (F16). Whatever is not stored, or not passed on, is answered so that the sender repeats (B09).
 */
async function receive(event: PaymentEvent, api: Api, clock: Clock) {
  const recorded = await recordPayment(api.db, event, {
    withinMs: clock.left(storeUntilMs),
    lockBudgetMs: clock.left(lockUntilMs),
  });
  switch (recorded.outcome) {
    case 'UNMATCHED':
      if (event.orderNumber === null) throw noHold();
      throw new Problem('ORDER_NOT_FOUND', 'There is no such order.');
    case 'OTHER_HOLD':
      throw new Problem(
        'PAYMENT_OF_OTHER_HOLD',
        `The payment ${event.paymentId} was reported for another hold before.`,
      );
    case 'RECORDED':
    case 'DUPLICATE':
      await passOn(recorded, event, api, clock);
      return ok({ outcome: recorded.outcome, hold_id: recorded.holdId });
  }
}

/**
 * To whoever has to act: the hold's workflow, which confirms what may be confirmed; a settlement of
 * its own when that has completed, or when money is to go back or to an operator. A payment that is
 * settled for good goes nowhere.
 */
async function passOn(
  { holdId, status, settlement }: Recorded,
  { provider, paymentId, eventId, amountMinor, currency }: PaymentEvent,
  { db, holds, send, sendSettle }: Api,
  clock: Clock,
): Promise<void> {
  const pending = status === 'succeeded' && settlement === null;
  if (!pending && settlement !== 'REFUND_DUE' && settlement !== 'NEEDS_REVIEW') return;
  let sent: { outcome: string } = { outcome: 'ENDED' };
  if (pending) {
    const row = await readOpenHold(db, holdId, clock.left());
    if (row === null) throw noHold();
    const payment = {
      ...{ provider, paymentId, amountMinor, currency, eventId: eventId!, status },
      recorded: true,
    };
    const request = adoptionRequest(row, { indexed: holds.indexed });
    sent = await send(
      holds,
      request,
      { kind: 'payment', payment },
      {
        withinMs: clock.left(passOnUntilMs),
      },
    );
  }
  if (sent.outcome === 'ENDED') {
    const withinMs = clock.left(passOnUntilMs);
    sent = await sendSettle(holds, holdId, { provider, paymentId }, { withinMs });
  }
  if (sent.outcome !== 'SENT') {
    throw new Problem(
      'WORKFLOW_UNAVAILABLE',
      'The event is stored, but Temporal did not take it yet. Send it again.',
      { retryAfterSeconds: 5 },
    );
  }
}

/**
 * Standard Webhooks over the raw bytes, with any of the secrets; answers the event's id. The forms
 * are checked first: the library reads a timestamp with parseInt, so "1700000000x" would pass.
 * @throws Problem SIGNATURE_INVALID
 */
export function verify(raw: Buffer, rawHeaders: string[], secrets: string[]): string {
  const header = (name: string, form: RegExp): string => {
    const value = theOne({ rawHeaders }, name, 'SIGNATURE_INVALID');
    if (value !== undefined && form.test(value)) return value;
    throw new Problem('SIGNATURE_INVALID', `The header ${name} is missing or malformed.`);
  };
  const headers = {
    'webhook-id': header('webhook-id', /^[\x21-\x7e]{1,255}$/),
    'webhook-timestamp': header('webhook-timestamp', /^[1-9]\d{0,11}$/),
    'webhook-signature': header('webhook-signature', /^[\x20-\x7e]{1,4000}$/),
  };
  let reason = 'No secret is set.';
  for (const secret of secrets) {
    try {
      new Webhook(secret).verify(raw, headers, { jsonParse: false });
      return headers['webhook-id'];
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
    }
  }
  throw new Problem('SIGNATURE_INVALID', `The delivery is not accepted: ${reason}.`);
}
