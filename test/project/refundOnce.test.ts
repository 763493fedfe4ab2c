import { randomBytes, randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import type {
  PaymentProvider,
  RefundAnswer,
  RefundRequest,
} from '../../activities/payments/provider.js';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox } from '../../cli/sandbox/sandbox.js';
import { behave, closeAll, kept, never, refundOf, secret } from './sandboxed.js';
import type { Behaviour } from './sandboxed.js';

afterEach(closeAll);

/** A sandbox that tells nobody, with the adapter that is to be tested. */
async function sandboxed(refunds: Behaviour['refunds'] = {}, timeoutMs?: number) {
  const behaviour = (now: Behaviour['refunds']) => ({
    refunds: now,
    webhooks: { refunded: false },
  });
  const sandbox = kept(
    await startSandbox({
      secret,
      deliverTo: 'http://127.0.0.1:9',
      seed: 1,
      behaviour: behaviour(refunds),
    }),
  );
  return {
    sandbox,
    provider: signedHttp({ url: sandbox.url, secret, timeoutMs }),
    behave: (now: Behaviour['refunds']) => behave(sandbox, behaviour(now)),
  };
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

/** What a workflow does until the answer is clear: look first, then ask. */
async function untilClear(
  provider: PaymentProvider,
  request: RefundRequest,
): Promise<RefundAnswer> {
  for (let tries = 1; ; tries++) {
    try {
      return (await provider.findRefund(request, never)) ?? (await provider.refund(request, never));
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
    const requests = Array.from({ length: 120 }, () => charged(sandbox));
    const answers = await inTens(requests, (request) => untilClear(provider, request));
    const made = requests.map(({ paymentId }) => sandbox.book.refundsOf(paymentId));
    expect(made.filter((refunds) => refunds.length !== 1)).toEqual([]);
    expect(answers).toEqual(
      made.map(([one]) => ({ outcome: 'EXECUTED', providerRef: one!.refund_id })),
    );
    expect(sandbox.book.counts.faults).toBeGreaterThan(15);

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

  it('S1: a wrong secret is thrown, both ways, and nothing is refunded', async () => {
    const { sandbox } = await sandboxed();
    const request = charged(sandbox);
    const forger = signedHttp({ url: sandbox.url, secret: randomBytes(32).toString('base64') });
    await expect(forger.refund(request, never)).rejects.toThrow('answered 401 (signature_invalid)');
    await expect(forger.findRefund(request, never)).rejects.toThrow('answered 401');
    expect(sandbox.book.refunds).toEqual([]);
  });
});
