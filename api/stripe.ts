import { isUtf8 } from 'node:buffer';
import { Stripe } from 'stripe';
import { z } from 'zod';
import type { PaymentEvent } from '../db/recordPayment.js';
import { Problem } from './errors.js';
import { check, parseJson } from './faults.js';

export type StripeEvent =
  | {
      outcome: 'PAYMENT';
      event: PaymentEvent;
      /** Refunded, but not all of it; `amountMinor` is then what was sent back so far, in total. */
      partial: boolean;
    }
  /** No type that we wait for, or a charge without a PaymentIntent. */
  | { outcome: 'IGNORED'; type: string }
  /** Money of ours or of another program on the same account: its metadata names no hold or order. */
  | { outcome: 'NO_REFERENCE'; type: string; eventId: string; paymentId: string };

/**
 * A delivery of Stripe: verified over its raw bytes, its form checked, and told as a payment event.
 * The PaymentIntent's metadata says what the money is for: `hold_id`, or else `order_number`. Stripe
 * copies it onto the charge. Amounts are in Stripe's smallest unit (see activities/payments/stripe.ts).
 * What is kept as payload are the fields below; the rest (names, addresses, cards) stays with Stripe.
 * @throws Problem SIGNATURE_INVALID, INVALID_REQUEST
 */
export function stripeEvent(
  raw: Buffer,
  header: string | undefined,
  secrets: string[],
  toleranceSeconds: number,
): StripeEvent {
  verify(raw, header, secrets, toleranceSeconds);
  const body = parseJson(raw);
  const { type } = check(anyEvent, body, 'body');
  switch (type) {
    case 'payment_intent.succeeded': {
      const payload = check(intentSucceeded, body, 'body');
      return told(payload, 'succeeded', payload.data.object.amount_received);
    }
    case 'payment_intent.payment_failed': {
      const payload = check(intentFailed, body, 'body');
      return told(payload, 'failed', payload.data.object.amount);
    }
    case 'charge.refunded': {
      const payload = check(chargeRefunded, body, 'body');
      const { payment_intent: intent, amount_refunded, refunded } = payload.data.object;
      if (intent === null) return { outcome: 'IGNORED', type };
      const id = typeof intent === 'string' ? intent : intent.id;
      return told(payload, 'refunded', amount_refunded, id, !refunded);
    }
    default:
      return { outcome: 'IGNORED', type };
  }
}

/** What all events have in common, checked. */
interface SomeEvent {
  id: string;
  type: string;
  data: { object: { id: string; currency: string; metadata: Record<string, string> } };
}

function told(
  payload: SomeEvent,
  status: PaymentEvent['status'],
  amountMinor: number,
  paymentId = payload.data.object.id,
  partial = false,
): StripeEvent {
  const { metadata, currency } = payload.data.object;
  const eventId = payload.id;
  const hold = uuid.safeParse(metadata['hold_id']);
  const order = orderNumber.safeParse(metadata['order_number']);
  if (!hold.success && !order.success) {
    return { outcome: 'NO_REFERENCE', type: payload.type, eventId, paymentId };
  }
  const event: PaymentEvent = {
    provider: 'stripe',
    paymentId,
    eventId,
    status,
    holdId: hold.success ? hold.data.toLowerCase() : null,
    orderNumber: hold.success ? null : order.data!,
    amountMinor,
    currency: currency.toUpperCase(),
    payload,
  };
  return { outcome: 'PAYMENT', event, partial };
}

const uuid = z.uuid();
const orderNumber = z.string().min(1).max(40);

const id = (prefix: string) =>
  z.string().regex(new RegExp(`^${prefix}_[A-Za-z0-9_]{1,190}$`), {
    error: `must be an id that begins with ${prefix}_`,
  });
const amount = z
  .int({ error: "must be a whole number of the currency's smallest unit" })
  .min(0, { error: 'must not be negative' });
const about = {
  currency: z.string().regex(/^[a-z]{3}$/, { error: 'must be three lower-case letters' }),
  metadata: z
    .record(z.string(), z.string(), { error: 'must be an object of texts' })
    .nullish()
    .transform((value) => value ?? {}),
};

const anyEvent = z.object({
  object: z.literal('event', { error: "must be 'event': a snapshot, not a thin event" }),
  type: z.string().min(1).max(200),
});

/** Fields that are not named are dropped. */
const eventOf = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.object({
    id: id('evt'),
    object: z.literal('event'),
    type: z.string(),
    created: z.int(),
    livemode: z.boolean(),
    data: z.object({ object: z.object({ ...about, ...shape }) }),
  });

const intent = { id: id('pi'), object: z.literal('payment_intent') };
const intentSucceeded = eventOf({ ...intent, amount_received: amount });
const intentFailed = eventOf({ ...intent, amount });
const chargeRefunded = eventOf({
  id: z.string(), // ch_, or py_ for what is no card
  object: z.literal('charge'),
  amount,
  amount_refunded: amount,
  refunded: z.boolean(),
  payment_intent: z
    .union([id('pi'), z.object({ id: id('pi') })], {
      error: 'must be a PaymentIntent, or its id',
    })
    .nullable(),
});

/**
 * The package compares the signatures in constant time. The rest is done before: it reads the time
 * with parseInt, takes any time of the future, none at all with a tolerance of 0, and decodes the
 * bytes in a way that lets a byte order mark, or bytes that are no UTF-8, pass as others.
 * `verifyHeader` and not `constructEvent`, so that whatever it throws means "not signed".
 * @throws Problem SIGNATURE_INVALID
 */
function verify(
  raw: Buffer,
  header: string | undefined,
  secrets: string[],
  toleranceSeconds: number,
): void {
  const refuse = (why: string) => new Problem('SIGNATURE_INVALID', why);
  if (header === undefined || !/^[\x21-\x7e]{1,4000}$/.test(header)) {
    throw refuse('The header stripe-signature is missing or malformed.');
  }
  const times = header.split(',').filter((part) => part.startsWith('t='));
  const seconds = Number(/^t=([1-9]\d{0,11})$/.exec(times[0] ?? '')?.[1]);
  if (times.length !== 1 || Number.isNaN(seconds)) {
    throw refuse('The header stripe-signature must have one time in seconds.');
  }
  const now = Math.floor(Date.now() / 1000);
  if (Math.abs(now - seconds) > toleranceSeconds) {
    throw refuse(`The delivery was signed more than ${toleranceSeconds} s ago, or in the future.`);
  }
  if (!isUtf8(raw)) throw refuse('The body is not UTF-8.');
  const text = raw.toString();
  for (const secret of secrets) {
    try {
      Stripe.webhooks.signature!.verifyHeader(text, header, secret, toleranceSeconds);
      return;
    } catch {
      continue;
    }
  }
  throw refuse('No signature of the delivery is of this body by a secret that is set.');
}
