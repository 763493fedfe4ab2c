import { Stripe } from 'stripe';
import type { PaymentProvider, RefundAnswer, RefundRequest } from './provider.js';

export interface StripeOptions {
  apiKey: string;
  /** Another address than Stripe's own, for a proxy or a local double; plain http only on 127.0.0.1. */
  baseUrl?: string;
  /** For one request, its answer read to the end. */
  timeoutMs?: number;
}

/**
 * Refunds over Stripe. Our payment id is the PaymentIntent's (`pi_...`).
 *
 * `amountMinor` is what Stripe calls the smallest unit, in both directions, and nothing is converted:
 * yen count as yen, Kuwaiti dinars as thousandths. Stripe differs from ISO 4217 only for ISK and UGX,
 * which it counts in hundredths (5 kronur are 500). Prices in these two are therefore to be given to
 * tahan in Stripe's unit. A table of factors here would be a hundredfold refund on the day on which
 * Stripe changes its own; without one, what goes back is in the unit of what came. A part that
 * Stripe does not refund (1.234 KWD, half a krona) is REFUSED by Stripe itself.
 *
 * Stripe answers a used idempotency key as it did before for at least 24 hours, a 500 included, and
 * then forgets it. So a caller asks `findRefund` first, at every try: our key stands in the refund's
 * metadata, which is kept for ever.
 */
export function stripeProvider(options: StripeOptions): PaymentProvider {
  const connect = connector(options);
  return {
    findRefund(request, signal) {
      return asked(signal, () => find(connect(signal), request));
    },
    refund(request, signal) {
      return asked(signal, () => send(connect(signal), request));
    },
  };
}

/** More refunds of one payment than this are not believed: "none" must never be a guess. */
const mostRefunds = 1000;

async function find(stripe: Stripe, request: RefundRequest): Promise<RefundAnswer | null> {
  let refused: RefundAnswer | null = null;
  let seen = 0;
  try {
    const list = stripe.refunds.list({ payment_intent: request.paymentId, limit: 100 });
    if ((await list).object !== 'list') throw new Error('Stripe sent something else than a list.');
    for await (const refund of list) {
      seen += 1;
      if (seen > mostRefunds) throw new Error(`Stripe lists more than ${mostRefunds} refunds.`);
      if (refund.metadata?.['tahan_key'] !== request.key) continue;
      const answer = answerOf(refund, request);
      if (answer.outcome === 'EXECUTED') return answer;
      refused ??= answer;
    }
  } catch (error) {
    // Then there is no refund of it either: let `refund` say so.
    if (refusalOf(error) === 'resource_missing') return null;
    throw error;
  }
  return refused;
}

async function send(stripe: Stripe, request: RefundRequest): Promise<RefundAnswer> {
  try {
    const refund = await stripe.refunds.create(
      {
        payment_intent: request.paymentId,
        amount: request.amountMinor,
        reason: reasonOf(request),
        metadata: { tahan_key: request.key, hold_id: request.holdId },
      },
      { idempotencyKey: request.key },
    );
    return answerOf(refund, request);
  } catch (error) {
    const detail = refusalOf(error);
    if (detail === undefined) throw error;
    // "Already refunded" may be the echo of an earlier call whose answer was lost and whose key is
    // forgotten, still on its way when the caller looked for it.
    return (await find(stripe, request)) ?? { outcome: 'REFUSED', detail };
  }
}

/** What Stripe's book should say: the customer asked for a return, but not for what we could not sell. */
function reasonOf({ reason }: RefundRequest): Stripe.RefundCreateParams['reason'] {
  if (reason === 'SURPLUS') return 'duplicate';
  return ['LATE', 'MISMATCH', 'REVIEWED'].includes(reason) ? undefined : 'requested_by_customer';
}

/**
 * Of a refund that exists: whatever has not failed is on its way. The fields are checked, since the
 * package takes any JSON without an `error`, also a proxy's 503, for the object.
 */
function answerOf(refund: Stripe.Refund, request: RefundRequest): RefundAnswer {
  if (refund.object !== 'refund' || typeof refund.id !== 'string' || refund.id === '') {
    throw new Error('Stripe sent something else than a refund.');
  }
  const { id, status, amount, currency } = refund;
  if (status === 'failed' || status === 'canceled') {
    return { outcome: 'REFUSED', detail: `${id} ${status}: ${refund.failure_reason ?? 'unknown'}` };
  }
  if (amount !== request.amountMinor || String(currency).toUpperCase() !== request.currency) {
    return { outcome: 'REFUSED', detail: `${id} is of ${amount} ${currency}, not of this amount` };
  }
  return { outcome: 'EXECUTED', providerRef: id };
}

/** Stripe's codes, at HTTP 400, for what passes, or what an operator of the account can put right. */
const passing = new Set([
  'lock_timeout',
  'idempotency_key_in_use',
  'rate_limit',
  'processing_error',
  'balance_insufficient',
  'insufficient_funds',
  'livemode_mismatch',
  'testmode_charges_only',
  'secret_key_required',
  'api_key_expired',
  'platform_api_key_expired',
  'tls_version_unsupported',
]);

/** The detail of a clear and lasting no; undefined when asking again may help. */
function refusalOf(error: unknown): string | undefined {
  if (!(error instanceof Stripe.errors.StripeError)) return undefined;
  const { statusCode, rawType, code, param } = error;
  if (statusCode === 404) return code === 'resource_missing' ? code : undefined;
  if (statusCode !== 400 || passing.has(code ?? '')) return undefined;
  if (rawType !== 'invalid_request_error' && rawType !== 'idempotency_error') return undefined;
  return code ?? [rawType, param].filter((part) => part !== undefined).join(': ');
}

/** Faults leave here as short sentences of our own: Stripe's messages may quote the key, or a buyer. */
async function asked<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Stripe.errors.StripeError)) throw error;
    const { statusCode, code, requestId } = error;
    const words = [statusCode === undefined ? 'no answer' : `HTTP ${statusCode}`, code, requestId];
    if (statusCode === 401 || statusCode === 403) words.push('check STRIPE_API_KEY');
    throw new Error(`Stripe: ${words.filter((word) => word !== undefined).join(', ')}`);
  }
}

/**
 * A client for one call (0.7 ms): the package takes no AbortSignal, but its fetch client takes a
 * `fetch`. Nor does that one repeat a request by itself, as the usual one does once after a cut
 * connection even with `maxNetworkRetries: 0`.
 */
function connector({ apiKey, baseUrl, timeoutMs = 20_000 }: StripeOptions) {
  const url = new URL(baseUrl ?? 'https://api.stripe.com');
  const secure = url.protocol === 'https:';
  if (!secure && !(url.protocol === 'http:' && url.hostname === '127.0.0.1')) {
    throw new Error('The address of Stripe must be https.');
  }
  if (`${url.origin}/` !== url.href) {
    throw new Error('The address of Stripe must be no more than a scheme, a host and a port.');
  }
  return (signal: AbortSignal) =>
    new Stripe(apiKey, {
      host: url.hostname,
      port: url.port || (secure ? 443 : 80),
      protocol: secure ? 'https' : 'http',
      timeout: timeoutMs,
      maxNetworkRetries: 0,
      telemetry: false,
      httpClient: Stripe.createFetchHttpClient(async (address, init) => {
        const response = await fetch(address, {
          ...init,
          redirect: 'error', // the key goes to nobody else
          signal: AbortSignal.any([signal, ...(init?.signal ? [init.signal] : [])]),
        });
        // Other JSON, such as a proxy's "ok", the package would answer with an unhandled rejection.
        const text = await response.text();
        return new Response(text.startsWith('{') ? text : '', response);
      }),
    });
}
