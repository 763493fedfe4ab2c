import { randomBytes, randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { verify } from '../../api/payments.js';
import type { RefundAnswer, RefundRequest } from '../../activities/payments/provider.js';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox, SandboxOptions } from '../../cli/sandbox/sandbox.js';
import { recorder } from './recorder.js';
import type { Answer, Heard, Recorder } from './recorder.js';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const never = new AbortController().signal;
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
});

type Behaviour = NonNullable<SandboxOptions['behaviour']>;

/** A sandbox that tells nobody, with the adapter that is to be tested. */
async function sandboxed(refunds: Behaviour['refunds'] = {}, timeoutMs?: number) {
  const behaviour = (now: Behaviour['refunds']) => ({
    refunds: now,
    webhooks: { refunded: false },
  });
  const sandbox = await startSandbox({
    secret,
    deliverTo: 'http://127.0.0.1:9',
    seed: 1,
    behaviour: behaviour(refunds),
  });
  open.push(sandbox);
  return {
    sandbox,
    provider: signedHttp({ url: sandbox.url, secret, timeoutMs }),
    behave: (now: Behaviour['refunds']) => put(sandbox, '/behaviour', behaviour(now)),
  };
}

async function put(sandbox: Sandbox, path: string, body: object): Promise<void> {
  const answer = await fetch(sandbox.url + path, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect(answer.status).toBe(200);
}

/** Twice what goes back, so that a second refund would be executed, not refused as too much. */
function charged({ book }: Sandbox): RefundRequest {
  const paymentId = `pay_${randomUUID()}`;
  const charge = {
    payment_id: paymentId,
    hold_id: randomUUID(),
    order_number: null,
    amount_minor: 5000,
    currency: 'EUR',
    status: 'succeeded' as const,
    created_at: new Date().toISOString(),
  };
  book.record({ kind: 'charge', charge });
  return refundOf(paymentId, charge.hold_id);
}

function refundOf(paymentId = 'pay_1', holdId = 'hold_1'): RefundRequest {
  const key = `refund-${paymentId}-late`;
  return { paymentId, amountMinor: 2500, currency: 'EUR', key, reason: 'LATE', holdId };
}

/** What a workflow does until the answer is clear: look first, then ask. */
async function untilClear(
  { findRefund, refund }: ReturnType<typeof signedHttp>,
  request: RefundRequest,
): Promise<RefundAnswer> {
  for (let tries = 1; ; tries++) {
    try {
      return (await findRefund(request, never)) ?? (await refund(request, never));
    } catch (error) {
      if (tries === 50) throw error;
    }
  }
}

async function inTens<T, R>(items: T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (let at = 0; at < items.length; at += 10)
    done.push(...(await Promise.all(items.slice(at, at + 10).map(work))));
  return done;
}

describe('refunds over signed HTTP, by a provider that behaves badly', () => {
  it('F18: one in five is executed but not answered, and no key is remembered: exactly once each, by looking first', async () => {
    const { sandbox, provider } = await sandboxed({
      execute_then_fail: 0.2,
      forget_keys_after_ms: 0,
    });
    const requests = Array.from({ length: 200 }, () => charged(sandbox));
    const answers = await inTens(requests, (request) => untilClear(provider, request));
    const made = requests.map(({ paymentId }) => sandbox.book.refundsOf(paymentId));
    expect(made.filter((refunds) => refunds.length !== 1)).toEqual([]);
    expect(answers).toEqual(
      made.map(([one]) => ({ outcome: 'EXECUTED', providerRef: one!.refund_id })),
    );
    expect(sandbox.book.counts.faults).toBeGreaterThan(20);

    // Whoever does not look first pays twice: this provider can tell.
    const blind = { ...provider, findRefund: () => Promise.resolve(null) };
    const others = Array.from({ length: 50 }, () => charged(sandbox));
    await inTens(others, (request) => untilClear(blind, request));
    const twice = others.filter(({ paymentId }) => sandbox.book.refundsOf(paymentId).length > 1);
    expect(twice.length).toBeGreaterThan(0);
  });

  it('F18: two calls at once with one key make one refund, and both hear of it', async () => {
    const { sandbox, provider } = await sandboxed();
    const request = charged(sandbox);
    const [first, second] = await Promise.all([1, 2].map(() => provider.refund(request, never)));
    expect(first).toEqual(second);
    expect(sandbox.book.refundsOf(request.paymentId)).toHaveLength(1);
    expect(sandbox.book.counts.repeated_keys).toBe(1);
  });

  it('F18: an answer that comes too late is no answer, and the refund is found afterwards', async () => {
    const { sandbox, provider, behave } = await sandboxed({ slow_ms: 60_000 }, 300);
    const request = charged(sandbox);
    await expect(provider.refund(request, never)).rejects.toThrow('did not answer within 300 ms');
    await behave({});
    const [made] = sandbox.book.refundsOf(request.paymentId);
    expect(await provider.findRefund(request, never)).toEqual({
      outcome: 'EXECUTED',
      providerRef: made!.refund_id,
    });
  });

  it('while the provider is down both calls throw; afterwards it is executed once', async () => {
    const { sandbox, provider, behave } = await sandboxed({ down: true });
    const request = charged(sandbox);
    await expect(provider.findRefund(request, never)).rejects.toThrow('answered 503 (unavailable)');
    await expect(provider.refund(request, never)).rejects.toThrow('answered 503 (unavailable)');
    await behave({});
    expect((await untilClear(provider, request)).outcome).toBe('EXECUTED');
    expect((await untilClear(provider, request)).outcome).toBe('EXECUTED');
    expect(sandbox.book.refundsOf(request.paymentId)).toHaveLength(1);
  });

  it('a refusal is an answer, with the code of the provider', async () => {
    const { sandbox, provider, behave } = await sandboxed();
    const request = charged(sandbox);
    const refused = async (change: Partial<RefundRequest>) => {
      const refundsMade = () => sandbox.book.refundsOf(request.paymentId).length;
      const before = refundsMade();
      const answer = await provider.refund({ ...request, ...change }, never);
      expect(refundsMade()).toBe(before);
      return answer;
    };
    const no = (detail: string) => ({ outcome: 'REFUSED', detail });
    expect(await refused({ amountMinor: 5001 })).toEqual(no('refund_exceeds_charge'));
    expect(await refused({ currency: 'USD' })).toEqual(no('currency_mismatch'));
    expect(await refused({ paymentId: 'pay_unknown' })).toEqual(no('payment_not_found'));
    expect(sandbox.book.counts).toMatchObject({ refused: 3, over_refunds_refused: 1 });
    await behave({ refuse: 'account_closed' });
    expect(await refused({})).toEqual(no('account_closed'));
    await behave({});
    expect((await provider.refund(request, never)).outcome).toBe('EXECUTED');
    // Under this key another amount went back: nobody may take that for this refund.
    expect(await refused({ amountMinor: 1 })).toEqual(no('refunded_another_amount'));
  });

  it('S1: a wrong secret is thrown, both ways, and nothing is refunded', async () => {
    const { sandbox } = await sandboxed();
    const request = charged(sandbox);
    const forger = signedHttp({ url: sandbox.url, secret: randomBytes(32).toString('base64') });
    await expect(forger.refund(request, never)).rejects.toThrow('answered 401 (signature_invalid)');
    await expect(forger.findRefund(request, never)).rejects.toThrow('answered 401');
    expect(sandbox.book.refunds).toEqual([]);
  });
});

describe('refunds over signed HTTP, what is said and what is understood', () => {
  async function answering(answer: (heard: Heard) => Answer | Promise<Answer>, timeoutMs?: number) {
    const server: Recorder = await recorder(answer);
    open.push(server);
    return { server, provider: signedHttp({ url: `${server.url}/v2/`, secret, timeoutMs }) };
  }

  it('both calls are signed by Standard Webhooks over the raw body, with the key as their id', async () => {
    const { server, provider } = await answering(({ method }) =>
      method === 'GET'
        ? { status: 200, body: { refunds: [] } }
        : { status: 201, body: { refund_id: 're_1', status: 'pending' } },
    );
    const request = refundOf('pay/1 ü');
    await expect(provider.findRefund(request, never)).rejects.toThrow('printable ASCII');
    expect(server.heard).toEqual([]);
    request.key = 'refund:1';
    expect(await provider.findRefund(request, never)).toBeNull();
    expect(await provider.refund(request, never)).toEqual({
      outcome: 'EXECUTED',
      providerRef: 're_1',
    });
    const [found, made] = server.heard as [Heard, Heard];
    expect(found.path).toBe('/v2/refunds?payment_id=pay%2F1+%C3%BC&key=refund%3A1');
    expect(made).toMatchObject({ method: 'POST', path: '/v2/refunds' });
    expect(made.headers).toMatchObject({
      'idempotency-key': 'refund:1',
      'content-type': 'application/json',
    });
    expect(JSON.parse(made.raw.toString())).toEqual({
      payment_id: 'pay/1 ü',
      amount_minor: 2500,
      currency: 'EUR',
      reason: 'LATE',
      hold_id: 'hold_1',
    });
    for (const { raw, rawHeaders } of [found, made])
      expect(verify(raw, rawHeaders, [secret])).toBe('refund:1');
  });

  const unclear: [string, Answer][] = [
    ...[400, 401, 403, 408, 425, 429, 500, 502, 503].map((status): [string, Answer] => [
      `${status} with a code`,
      { status, body: { code: 'no_luck', said: 'PRIVATE' } },
    ]),
    ['404 without a code', { status: 404, body: { message: 'PRIVATE' } }],
    ['422 without JSON', { status: 422, body: '<html>PRIVATE' }],
    ['409 with a sentence for a code', { status: 409, body: { code: 'PRIVATE or not' } }],
    ['200 without JSON', { status: 200, body: 'PRIVATE' }],
    ['200 with null', { status: 200, body: 'null' }],
    ['200 with another form', { status: 200, body: { refund: 'PRIVATE', refunds: {} } }],
    ['204', { status: 204 }],
    ['no answer at all', 'cut'],
    [
      'more than 64 KB',
      {
        status: 200,
        body: { refunds: [], refund_id: 're', status: 'pending', more: 'PRIVATE'.repeat(10_000) },
      },
    ],
  ];

  it.each(unclear)('%s is no answer: both calls throw, in few words', async (_name, answer) => {
    const { provider } = await answering(() => answer);
    const errors = await Promise.all(
      [provider.refund, provider.findRefund].map((call) =>
        call(refundOf(), never).then(
          (said) => expect.fail(`answered ${JSON.stringify(said)}`),
          (error: Error) => error,
        ),
      ),
    );
    for (const error of errors) {
      expect(error.message).toMatch(
        /^The payment provider (answered (more than )?\d+|can't be reached)/,
      );
      const whole = `${error.message} ${JSON.stringify(error.cause ?? '')}`;
      expect(whole).not.toContain('PRIVATE');
      expect(whole).not.toContain(secret.slice(6));
      expect(whole.length).toBeLessThan(120);
    }
  });

  it.each([
    ['without an id', { status: 'succeeded', key: 'x', amount_minor: 1 }],
    ['without a key', { refund_id: 're_1', status: 'succeeded', amount_minor: 1 }],
    ['in an unknown state', { refund_id: 're_1', status: 'perhaps', key: 'x', amount_minor: 1 }],
    ['without an amount', { refund_id: 're_1', status: 'succeeded', key: 'x' }],
    ['that is null', null],
  ])('F18: a listed refund %s is not "none": it throws', async (_name, entry) => {
    const { provider } = await answering(() => ({ status: 200, body: { refunds: [entry] } }));
    await expect(provider.findRefund(refundOf(), never)).rejects.toThrow(
      'another form than agreed',
    );
  });

  it('F18: only the refund under the own key is the own one, and a failed one is a no', async () => {
    let refunds: object[] = [];
    const { provider } = await answering(() => ({ status: 200, body: { refunds } }));
    const request = refundOf();
    const { key } = request;
    const one = (
      refund_id: string,
      status: string,
      its: string | null = key,
      amount_minor = 2500,
    ) => ({
      refund_id,
      status,
      key: its,
      amount_minor,
    });
    const found = (...listed: object[]) => {
      refunds = listed;
      return provider.findRefund(request, never);
    };
    expect(
      await found(one('re_1', 'succeeded', null), one('re_2', 'succeeded', 'other')),
    ).toBeNull();
    expect(await found(one('re_1', 'failed'))).toEqual({
      outcome: 'REFUSED',
      detail: 'refund_failed',
    });
    expect(await found(one('re_1', 'failed'), one('re_2', 'pending'))).toEqual({
      outcome: 'EXECUTED',
      providerRef: 're_2',
    });
    expect(await found(one('re_1', 'succeeded', key, 2499))).toEqual({
      outcome: 'REFUSED',
      detail: 'refunded_another_amount',
    });
  });

  it('F18: 409 "refunded already" under the own key is found, and is no refusal', async () => {
    const { provider } = await answering(({ method }) =>
      method === 'POST'
        ? { status: 409, body: { code: 'already_refunded' } }
        : {
            status: 200,
            body: {
              refunds: [
                { refund_id: 're_1', status: 'succeeded', key: refundOf().key, amount_minor: 2500 },
              ],
            },
          },
    );
    expect(await provider.refund(refundOf(), never)).toEqual({
      outcome: 'EXECUTED',
      providerRef: 're_1',
    });
  });

  it.each([301, 302, 303, 307, 308])('a redirect (%i) is not followed', async (status) => {
    const elsewhere = await answering(() => ({
      status: 201,
      body: { refund_id: 're_1', status: 'pending', refunds: [] },
    }));
    const { provider } = await answering(() => ({
      status,
      headers: { location: `${elsewhere.server.url}/refunds` },
    }));
    await expect(provider.refund(refundOf(), never)).rejects.toThrow('redirects are not followed');
    await expect(provider.findRefund(refundOf(), never)).rejects.toThrow(
      'redirects are not followed',
    );
    expect(elsewhere.server.heard).toEqual([]);
  });

  it('a cancelled call ends at once with the reason, and a call after it is not sent', async () => {
    const abort = new AbortController();
    const reason = new Error('the activity was cancelled');
    const { server, provider } = await answering(() => {
      abort.abort(reason);
      return new Promise(() => undefined);
    });
    await expect(provider.refund(refundOf(), abort.signal)).rejects.toBe(reason);
    await expect(provider.findRefund(refundOf(), abort.signal)).rejects.toBe(reason);
    expect(server.heard).toHaveLength(1);
  });

  it('an answer that never ends is given up in time', async () => {
    const stuck: typeof fetch = (_url, init) =>
      Promise.resolve(
        new Response(
          new ReadableStream({
            start: (stream) =>
              init!.signal!.addEventListener('abort', () => stream.error(init!.signal!.reason)),
          }),
        ),
      );
    const provider = signedHttp({
      url: 'https://pay.example',
      secret,
      timeoutMs: 200,
      fetch: stuck,
    });
    await expect(provider.refund(refundOf(), never)).rejects.toThrow(
      'did not answer within 200 ms',
    );
  });

  it('S1: a wrong address or secret is refused before anything is sent, without repeating it', () => {
    const made =
      (url: string, its = secret) =>
      () =>
        signedHttp({ url, secret: its });
    for (const url of [
      'http://pay.example',
      'ftp://127.0.0.1',
      'http://127.0.0.1.example',
      'http://0.0.0.0',
      'no url',
      '',
    ])
      expect(made(url), url).toThrow(/address must be https|address is no URL/);
    for (const url of [
      'https://user:hush@pay.example',
      'https://pay.example/?key=hush',
      'https://pay.example/#hush',
    ])
      expect(made(url), url).toThrow(
        /^The payment provider's address must have no user, query or fragment$/,
      );
    for (const its of [
      '',
      'whsec_',
      'hush',
      `whsec_${randomBytes(23).toString('base64')}`,
      `whsec_${randomBytes(65).toString('base64')}`,
    ])
      expect(made('https://pay.example', its), its).toThrow(
        /^The payment provider's secret must be 24 to 64 bytes in base64$/,
      );
    for (const url of ['https://pay.example/v1', 'http://127.0.0.1:1', 'http://localhost:1'])
      expect(made(url)).not.toThrow();
  });
});
