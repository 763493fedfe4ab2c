import { Webhook } from 'standardwebhooks';
import type { PaymentProvider, RefundAnswer, RefundRequest } from './provider.js';

export interface SignedHttpOptions {
  /** `https:`, or `http:` on this machine. */
  url: string;
  /** Shared with the provider: 24 to 64 bytes in base64, with or without `whsec_`. */
  secret: string;
  timeoutMs?: number;
  fetch?: typeof fetch;
}

const longestAnswer = 64 * 1024;

/** These two say "later", whatever their code is; 404, 409 and 422 with a code say "no". */
const refusals = [404, 409, 422];

/**
 * A provider, or a gateway in front of one, that speaks the protocol of docs/payment-provider.md.
 * Messages of errors name neither secret nor body: they stand in Temporal's history for ever.
 */
export function signedHttp({
  url,
  secret,
  timeoutMs = 10_000,
  fetch: send = fetch,
}: SignedHttpOptions): PaymentProvider {
  const address = refundsAddress(url);
  const webhook = new Webhook(theSecret(secret));

  async function call(request: RefundRequest, signal: AbortSignal, body?: string): Promise<Answer> {
    if (!/^[\x21-\x7e]{1,255}$/.test(request.key))
      throw new Error("The refund's key must be 1 to 255 printable ASCII characters");
    const now = new Date();
    const target = new URL(address);
    if (body === undefined) {
      target.searchParams.set('payment_id', request.paymentId);
      target.searchParams.set('key', request.key);
    }
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await send(target, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          accept: 'application/json',
          'idempotency-key': request.key,
          'webhook-id': request.key,
          'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
          'webhook-signature': webhook.sign(request.key, now, body ?? ''),
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body }),
        // A redirect would carry the signed refund to an address that nobody has configured.
        redirect: 'manual',
        signal: AbortSignal.any([signal, timeout]),
      });
      return { status: response.status, json: parsed(await bounded(response)) };
    } catch (error) {
      signal.throwIfAborted(); // a cancelled activity ends as cancelled
      if (timeout.aborted)
        throw new Error(`The payment provider did not answer within ${timeoutMs} ms`);
      if (error instanceof TooLong) throw new Error(error.message);
      throw new Error(`The payment provider can't be reached (${networkCode(error)})`);
    }
  }

  async function findRefund(
    request: RefundRequest,
    signal: AbortSignal,
  ): Promise<RefundAnswer | null> {
    const { status, json } = await call(request, signal);
    if (status !== 200) throw unclear(status, json);
    const { refunds } = object(json) ?? {};
    if (!Array.isArray(refunds)) throw malformed(status);
    // One that can't be read might be ours: "none" must never be said by mistake.
    const own = refunds
      .map((each) => listed(each, status))
      .filter(({ key }) => key === request.key);
    const found = own.find((refund) => refund.status !== 'failed') ?? own[0];
    if (found === undefined) return null;
    if (found.status === 'failed') return { outcome: 'REFUSED', detail: 'refund_failed' };
    if (found.amountMinor !== request.amountMinor)
      return { outcome: 'REFUSED', detail: 'refunded_another_amount' };
    return { outcome: 'EXECUTED', providerRef: found.refundId };
  }

  return {
    findRefund,

    async refund(request, signal) {
      const body = JSON.stringify({
        payment_id: request.paymentId,
        amount_minor: request.amountMinor,
        currency: request.currency,
        reason: request.reason,
        hold_id: request.holdId,
      });
      const { status, json } = await call(request, signal, body);
      if (status === 200 || status === 201) {
        const { refund_id: providerRef, status: state } = object(json) ?? {};
        if (!isText(providerRef)) throw malformed(status);
        if (state === 'failed') return { outcome: 'REFUSED', detail: 'refund_failed' };
        if (state !== 'succeeded' && state !== 'pending') throw malformed(status);
        return { outcome: 'EXECUTED', providerRef };
      }
      const code = codeOf(json);
      if (!refusals.includes(status) || code === undefined) throw unclear(status, json);
      // 409 may mean "I have done this already": then it is in the list.
      const done = status === 409 ? await findRefund(request, signal) : null;
      return done ?? { outcome: 'REFUSED', detail: code };
    },
  };
}

interface Answer {
  status: number;
  /** Undefined where the body is no JSON. */
  json: unknown;
}

class TooLong extends Error {}

/** @throws Error for anything but https, or http on this machine: a refund must not travel in the open. */
function refundsAddress(text: string): URL {
  if (!URL.canParse(text)) throw new Error("The payment provider's address is no URL");
  const url = new URL(text);
  const local = ['127.0.0.1', 'localhost'].includes(url.hostname);
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && local))
    throw new Error("The payment provider's address must be https, or http on 127.0.0.1");
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    throw new Error("The payment provider's address must have no user, query or fragment");
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/refunds`;
  return url;
}

function theSecret(secret: string): string {
  const base64 = secret.replace(/^whsec_/, '');
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.length < 24 || bytes.length > 64 || bytes.toString('base64') !== base64)
    throw new Error("The payment provider's secret must be 24 to 64 bytes in base64");
  return base64;
}

async function bounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    // Leaving the loop cancels the body.
    if (length > longestAnswer)
      throw new TooLong(`The payment provider answered more than ${longestAnswer} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function object(json: unknown): Record<string, unknown> | undefined {
  return typeof json === 'object' && json !== null ? (json as Record<string, unknown>) : undefined;
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);
}

/** A word, not a sentence: it goes into the books as it is. */
function codeOf(json: unknown): string | undefined {
  const code = object(json)?.['code'];
  return typeof code === 'string' && /^[\w.-]{1,100}$/.test(code) ? code : undefined;
}

function listed(entry: unknown, status: number) {
  const {
    refund_id: refundId,
    status: state,
    key,
    amount_minor: amountMinor,
  } = object(entry) ?? {};
  if (
    !isText(refundId) ||
    (typeof key !== 'string' && key !== null) ||
    !Number.isInteger(amountMinor)
  )
    throw malformed(status);
  if (state !== 'succeeded' && state !== 'pending' && state !== 'failed') throw malformed(status);
  return { refundId, status: state, key, amountMinor };
}

function malformed(status: number): Error {
  return new Error(`The payment provider answered ${status} in another form than agreed`);
}

function unclear(status: number, json: unknown): Error {
  if (status >= 300 && status < 400)
    return new Error(`The payment provider answered ${status}: redirects are not followed`);
  const code = codeOf(json);
  return new Error(
    `The payment provider answered ${status}${code === undefined ? '' : ` (${code})`}`,
  );
}

/** fetch says only "failed"; the code is in its cause. */
function networkCode(error: unknown): string {
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as NodeJS.ErrnoException;
    if (typeof code === 'string' && /^[A-Z_]{2,50}$/.test(code)) return code;
  }
  return 'no connection';
}
