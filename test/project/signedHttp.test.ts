import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { verify } from '../../api/payments.js';
import { recorder } from './recorder.js';
import type { Answer, Heard } from './recorder.js';
import { closeAll, kept, never, refundOf, secret } from './sandboxed.js';

afterEach(closeAll);

describe('refunds over signed HTTP, what is said and what is understood', () => {
  async function answering(answer: (heard: Heard) => Answer | Promise<Answer>, timeoutMs?: number) {
    const server = kept(await recorder(answer));
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
    ['201 without an id', { status: 201, body: { status: 'succeeded' } }],
    ['201 in an unknown state', { status: 201, body: { refund_id: 're_1', status: 'perhaps' } }],
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
      [provider.refund(refundOf(), never), provider.findRefund(refundOf(), never)].map((call) =>
        call.then(
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
    }, 600_000);
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
      'https://hush@pay.example',
      'https://:hush@pay.example',
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
