import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import type { RefundRequest } from '../../activities/payments/provider.js';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { charged, inTens, refundAll, sandboxed, untilClear } from './refundTrial.js';
import { closeAll, never } from './sandboxed.js';

afterEach(closeAll);

describe('refunds over signed HTTP, by a provider that behaves badly', () => {
  it('F18: one in five is executed but not answered, and no key is remembered: exactly once each, by looking first', async () => {
    const { sandbox, provider } = await refundAll(120);

    // Whoever does not look first pays twice: this provider can tell.
    const blind = { ...provider, findRefund: () => Promise.resolve(null) };
    const others = Array.from({ length: 30 }, () => charged(sandbox));
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

  it('overdraw: it sends back more than was paid, so that nobody but the caller prevents it', async () => {
    const { sandbox, provider } = await sandboxed({ overdraw: true });
    const request = charged(sandbox);
    for (const key of ['first', 'second'])
      expect(await provider.refund({ ...request, amountMinor: 5000, key }, never)).toMatchObject({
        outcome: 'EXECUTED',
      });
    expect(sandbox.book.refundsOf(request.paymentId)).toHaveLength(2);
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
