import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type {
  PaymentProvider,
  RefundAnswer,
  RefundRequest,
} from '../../activities/payments/provider.js';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox } from '../../cli/sandbox/sandbox.js';
import { behave, kept, never, refundOf, secret } from './sandboxed.js';
import type { Behaviour } from './sandboxed.js';

/** A sandbox that tells nobody, with the adapter that is to be tested. */
export async function sandboxed(refunds: Behaviour['refunds'] = {}, timeoutMs?: number) {
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
export function charged({ book }: Sandbox): RefundRequest {
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
export async function untilClear(
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

export async function inTens<T, R>(items: T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (let at = 0; at < items.length; at += 10)
    done.push(...(await Promise.all(items.slice(at, at + 10).map(work))));
  return done;
}

/** As many refunds by a provider that executes one in five without an answer, and remembers no key. */
export async function refundAll(count: number) {
  const { sandbox, provider } = await sandboxed({
    execute_then_fail: 0.2,
    forget_keys_after_ms: 0,
  });
  const requests = Array.from({ length: count }, () => charged(sandbox));
  const answers = await inTens(requests, (request) => untilClear(provider, request));
  const made = requests.map(({ paymentId }) => sandbox.book.refundsOf(paymentId));
  expect(made.filter((refunds) => refunds.length !== 1)).toEqual([]);
  expect(answers).toEqual(
    made.map(([one]) => ({ outcome: 'EXECUTED', providerRef: one!.refund_id })),
  );
  expect(sandbox.book.counts.faults).toBeGreaterThan(count / 8);
  return { sandbox, provider };
}
