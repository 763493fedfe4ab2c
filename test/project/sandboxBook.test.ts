import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { dice } from '../../cli/sandbox/behaviour.js';
import type { Charge } from '../../cli/sandbox/book.js';
import type { Sandbox } from '../../cli/sandbox/sandbox.js';
import {
  api,
  behave,
  charge,
  closeAll,
  delivered,
  events,
  holdId,
  never,
  post,
  read,
  secret,
  start,
  taken,
} from './sandboxed.js';

afterEach(closeAll);

describe('the sandbox keeps its own book', () => {
  it('a restart forgets no charge, no refund and no event that is still to be delivered, and half a line does no harm', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tahan-sandbox-'));
    try {
      const file = join(folder, 'kept', 'sandbox.jsonl');
      let up = false;
      const server = await api(() => (up ? taken : { status: 503 }));
      const first = await start(server, { file });
      const [charged] = await charge(first);
      const request = {
        paymentId: charged!.payment_id,
        amountMinor: 2500,
        currency: 'EUR',
        key: 'key-1',
        reason: 'LATE',
        holdId,
      };
      const made = await signedHttp({ url: first.url, secret }).refund(request, never);
      await expect.poll(() => events(server.heard).length).toBeGreaterThan(1);
      await first.close();
      const before = first.book.shown();
      appendFileSync(file, '{"kind":"refund","refund":{"refund_id":"re_torn"');

      const second = await start(server, { file });
      expect(second.book.shown()).toMatchObject({
        charges: before.charges,
        refunds: before.refunds,
        counts: before.counts,
      });
      const provider = signedHttp({ url: second.url, secret });
      expect(await provider.findRefund(request, never)).toEqual(made);
      expect(await provider.refund(request, never)).toEqual(made);
      up = true;
      const told = await delivered(second);
      expect(told.map(({ type, state }) => `${type} ${state}`)).toEqual([
        'payment.succeeded delivered',
        'payment.refunded delivered',
      ]);
      await second.close();
      const third = await start(server, { file });
      expect(third.book.shown()).toEqual(second.book.shown());
    } finally {
      await closeAll();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('tells the API of each executed refund once, unless it is told not to, and shows it', async () => {
    const server = await api();
    const sandbox = await start(server);
    const provider = signedHttp({ url: sandbox.url, secret });
    const back = async ({ payment_id }: Charge) =>
      provider.refund(
        {
          paymentId: payment_id,
          amountMinor: 100,
          currency: 'EUR',
          key: `k-${payment_id}`,
          reason: 'LATE',
          holdId,
        },
        never,
      );
    const [one, other] = await charge(sandbox, { payments: 2 });
    await back(one!);
    await back(one!);
    await behave(sandbox, { webhooks: { refunded: false } });
    await back(other!);
    await delivered(sandbox);
    const refunded = server.heard
      .map((heard) => read(heard))
      .filter(({ type }) => type === 'payment.refunded');
    expect(refunded.map(({ data }) => data)).toMatchObject([
      { payment_id: one!.payment_id, hold_id: holdId, amount_minor: 100, currency: 'EUR' },
    ]);
    const book = (await (await fetch(`${sandbox.url}/book`)).json()) as ReturnType<
      Sandbox['book']['shown']
    >;
    expect(book.refunds.map(({ payment_id }) => payment_id)).toEqual([
      one!.payment_id,
      other!.payment_id,
    ]);
    expect(book.counts.repeated_keys).toBe(1);
  });

  it('the same seed makes the same faults', () => {
    const thrown = (seed: number) => {
      const roll = dice(seed);
      return Array.from({ length: 1000 }, () => roll() < 0.2);
    };
    expect(thrown(7)).toEqual(thrown(7));
    expect(thrown(7)).not.toEqual(thrown(8));
    const faults = thrown(7).filter(Boolean).length;
    expect(faults).toBeGreaterThan(150);
    expect(faults).toBeLessThan(250);
  });

  it('only this machine, only JSON, only fields it knows; refunds only with a signature over their key', async () => {
    const sandbox = await start(await api());
    const plain = await fetch(`${sandbox.url}/charges`, {
      method: 'POST',
      body: JSON.stringify({ hold_id: holdId }),
    });
    expect(plain.status).toBe(415);
    expect(await post(sandbox, '/charges', { hold_id: holdId, lat: true })).toMatchObject({
      status: 400,
    });
    expect(await post(sandbox, '/charges', {})).toMatchObject({ status: 400 });
    expect(await post(sandbox, '/refunds', {})).toMatchObject({
      status: 401,
      body: { code: 'signature_invalid' },
    });
    expect(await statusFor(sandbox, 'rebound.example')).toBe(403);
    expect(await statusFor(sandbox, 'localhost')).toBe(200);

    // A signed question for one key must not be good for another one.
    const provider = signedHttp({
      url: sandbox.url,
      secret,
      fetch: (url, init) => {
        const other = new URL(url);
        other.searchParams.set('key', 'another');
        return fetch(other, init);
      },
    });
    const request = {
      paymentId: 'p',
      amountMinor: 1,
      currency: 'EUR',
      key: 'own',
      reason: 'LATE',
      holdId,
    };
    await expect(provider.findRefund(request, never)).rejects.toThrow('answered 401');
    expect(sandbox.book.charges.size).toBe(0);
  });
});

/** fetch sets the Host header itself. */
function statusFor({ url }: Sandbox, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    httpRequest(`${url}/book`, { headers: { host } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    })
      .on('error', reject)
      .end();
  });
}
