import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { RefundRequest } from '../../../activities/payments/provider.js';
import { root } from '../../../cli/root.js';

export function recorded<T = unknown>(name: string): T {
  return JSON.parse(readFileSync(join(root, 'test/project/stripe', `${name}.json`), 'utf8')) as T;
}

export interface StripeRefund {
  id: string;
  amount: number;
  currency: string;
  metadata: Record<string, string>;
  payment_intent: string;
  reason: string | null;
  status: string;
  failure_reason?: string;
}

/** All of 25 EUR, that came late. */
export function refundOf(fields: Partial<RefundRequest> = {}): RefundRequest {
  return {
    paymentId: 'pi_3TahanIntent00000000001',
    amountMinor: 2500,
    currency: 'EUR',
    key: 'late-1',
    reason: 'LATE',
    holdId: '6f9b4c5e-0d6b-5e0c-9b7a-2f6e2b1c3d4e',
    ...fields,
  };
}

/** What happens to the next request: before it does anything, or after it has done everything. */
export type Fault =
  /** One of errors.json, in place of the answer; nothing is done, nothing remembered. */
  | { answer: string }
  /** A 500 while it was at work: remembered under the key, as Stripe does. Done or not. */
  | { fails: 'before' | 'after' }
  /** The connection is cut; what was done is remembered under the key. */
  | { cut: 'before' | 'after' }
  /** Done, and the answer does not come before `release`. */
  | { slow: true }
  /** Any bytes with status 200. */
  | { says: string }
  | { redirect: string };

interface Reply {
  status: number;
  body: unknown;
}

/** A request as it came. */
interface Seen {
  method: string;
  path: string;
  key: string | undefined;
  headers: IncomingHttpHeaders;
  replayed: boolean;
  /** The caller went away before it had the answer. */
  left: boolean;
}

type Errors = Record<string, { status: number } & Record<string, unknown>>;

/**
 * The two endpoints of Stripe that refunds need, on 127.0.0.1, with its idempotency: a key that was
 * used answers as it did before (`idempotent-replayed: true`, 500 too), or with `idempotency_error`
 * to other parameters; what was refused before anything began is not remembered.
 */
export async function stripeDouble({ apiKey = 'sk_test_tahan0001' } = {}) {
  const errors = recorded<Errors>('errors');
  const template = recorded<object>('refund');
  const intents = new Map<string, { amount: number; currency: string }>();
  const refunds: StripeRefund[] = [];
  const keys = new Map<string, { parameters: string; reply: Reply }>();
  const requests: Seen[] = [];
  const faults: Fault[] = [];
  let released = () => {};
  const release = new Promise<void>((resolve) => (released = resolve));

  const error = (name: string): Reply => {
    const { status, ...body } = errors[name]!;
    return { status, body };
  };

  /** Real work, after the checks that a key is not remembered for. */
  function execute(form: URLSearchParams): Reply {
    const paymentIntent = form.get('payment_intent')!;
    const intent = intents.get(paymentIntent)!;
    const amount = Number(form.get('amount'));
    const given = refunds
      .filter((one) => one.payment_intent === paymentIntent && one.status !== 'failed')
      .reduce((sum, one) => sum + one.amount, 0);
    if (given === intent.amount) return error('charge_already_refunded');
    if (amount > intent.amount - given) return error('amount_too_large');
    if (intent.currency === 'isk' && amount % 100 !== 0) return error('not_of_this_currency');
    const metadata: Record<string, string> = {};
    for (const [name, value] of form) {
      const field = /^metadata\[(\w+)\]$/.exec(name)?.[1];
      if (field !== undefined) metadata[field] = value;
    }
    const refund: StripeRefund = {
      ...template,
      id: `re_3Tahan${String(refunds.length + 1).padStart(16, '0')}`,
      amount,
      currency: intent.currency,
      metadata,
      payment_intent: paymentIntent,
      reason: form.get('reason'),
      status: 'succeeded',
    };
    refunds.unshift(refund); // Stripe lists the newest first
    return { status: 200, body: refund };
  }

  function create(form: URLSearchParams, key: string, fault: Fault | undefined) {
    const parameters = form.toString();
    const before = keys.get(key);
    if (before !== undefined) {
      if (before.parameters !== parameters) return { reply: error('idempotency_error') };
      return { reply: before.reply, replayed: true };
    }
    if (!intents.has(form.get('payment_intent') ?? '')) {
      return { reply: error('resource_missing') };
    }
    let reply: Reply;
    if (fault !== undefined && 'fails' in fault) {
      if (fault.fails === 'after') execute(form);
      reply = error('api_error');
    } else reply = execute(form);
    keys.set(key, { parameters, reply });
    return { reply };
  }

  function list(query: URLSearchParams): Reply {
    const paymentIntent = query.get('payment_intent')!;
    if (!intents.has(paymentIntent)) return error('resource_missing');
    const of = refunds.filter((one) => one.payment_intent === paymentIntent);
    const from = of.findIndex(({ id }) => id === query.get('starting_after')) + 1;
    const data = of.slice(from, from + Number(query.get('limit') ?? 10));
    const more = from + data.length < of.length;
    return { status: 200, body: { object: 'list', url: '/v1/refunds', has_more: more, data } };
  }

  async function handle(request: IncomingMessage, response: ServerResponse) {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const url = new URL(request.url!, 'http://double');
    const { 'idempotency-key': header } = request.headers;
    const key = typeof header === 'string' ? header : undefined;
    const { method, headers } = request;
    const noted: Seen = {
      ...{ method: method!, path: url.pathname, key, headers },
      ...{ replayed: false, left: false },
    };
    requests.push(noted);
    response.on('close', () => (noted.left = !response.writableFinished));
    const fault = faults.shift();
    const cut = () => void request.socket.destroy();
    const answer = ({ status, body }: Reply) => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'request-id': `req_Tahan${String(requests.length).padStart(9, '0')}`,
        ...(key !== undefined && { 'idempotency-key': key }),
        ...(noted.replayed && { 'idempotent-replayed': 'true' }),
      });
      response.end(JSON.stringify(body));
    };
    if (fault !== undefined) {
      if ('cut' in fault && fault.cut === 'before') return cut();
      if ('answer' in fault) return answer(error(fault.answer));
      if ('says' in fault) return void response.writeHead(200).end(fault.says);
      if ('redirect' in fault) {
        return void response.writeHead(307, { location: fault.redirect }).end();
      }
    }
    if (request.headers.authorization !== `Bearer ${apiKey}`)
      return answer(error('authentication'));
    if (url.pathname !== '/v1/refunds') return answer(error('no_such_route'));
    let reply: Reply;
    if (request.method === 'POST') {
      const form = new URLSearchParams(Buffer.concat(chunks).toString());
      const created = create(form, key ?? '', fault);
      noted.replayed = created.replayed === true;
      reply = created.reply;
    } else reply = list(url.searchParams);
    if (fault !== undefined && 'cut' in fault) return cut();
    if (fault !== undefined && 'slow' in fault) await release;
    answer(reply);
  }

  const server = createServer((request, response) => {
    handle(request, response).catch(() => request.socket.destroy());
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));

  return {
    apiKey,
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    refunds,
    requests,
    /** A payment that has succeeded. */
    paid(id: string, amount: number, currency: string): void {
      intents.set(id, { amount, currency: currency.toLowerCase() });
    },
    /** For the next requests, one each. */
    next: (...each: Fault[]) => void faults.push(...each),
    /** As Stripe does after a day. */
    forgetKeys: () => keys.clear(),
    async close(): Promise<void> {
      released();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export type StripeDouble = Awaited<ReturnType<typeof stripeDouble>>;
