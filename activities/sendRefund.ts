import { Context } from '@temporalio/activity';
import { beginRefund } from '../db/beginRefund.js';
import type { Database } from '../db/database.js';
import { finishRefund } from '../db/finishRefund.js';
import type { RefundEnd } from '../db/finishRefund.js';
import type { PaymentRef, RefundState } from '../db/values.js';
import type { PaymentProvider, RefundRequest } from './payments/provider.js';

/** The adapter for the provider that a payment names, if this worker has one. */
export type PaymentProviders = (name: string) => PaymentProvider | undefined;

export interface SentRefund {
  state: RefundState | 'MISSING';
  providerRef?: string;
  detail?: string;
}

/** Below the activity's start-to-close: an attempt that is given up must not come to life later. */
const callMs = 30_000;

/**
 * One try of a refund: marks the call, asks the provider for what an earlier call may have done,
 * and only then calls it (F18). Whatever is not a clear answer is thrown, and tried again.
 */
export async function sendRefund(
  db: Database,
  providers: PaymentProviders,
  payment: PaymentRef,
  cause: string,
): Promise<SentRefund> {
  const provider = providers(payment.provider);
  if (provider === undefined) throw new UnknownProvider(payment.provider);
  const begun = await beginRefund(db, payment, cause);
  if (begun.outcome === 'MISSING') return { state: 'MISSING' };
  if (begun.outcome === 'DONE') return { state: begun.state };
  const { outcome: _, calledBefore, ...request } = begun;
  const answer = await call(provider, request, calledBefore);
  const end: RefundEnd =
    answer.outcome === 'EXECUTED'
      ? { state: 'EXECUTED', providerRef: answer.providerRef }
      : { state: 'REFUSED', detail: answer.detail };
  const finished = await finishRefund(db, payment, cause, end);
  return { ...end, state: finished.outcome === 'MISSING' ? 'MISSING' : finished.state };
}

async function call(provider: PaymentProvider, request: RefundRequest, calledBefore: boolean) {
  const signal = AbortSignal.any([
    AbortSignal.timeout(callMs),
    Context.current().cancellationSignal,
  ]);
  const earlier = calledBefore ? await provider.findRefund(request, signal) : null;
  return earlier ?? provider.refund(request, signal);
}

/** An operator reads this at the pending activity, and it goes on once the worker knows the provider. */
class UnknownProvider extends Error {
  constructor(name: string) {
    super(
      `this worker can't refund payments of the provider "${name}": set TAHAN_REFUND_URL and ` +
        'TAHAN_REFUND_SECRET, or STRIPE_API_KEY, and start it again',
    );
  }
}
