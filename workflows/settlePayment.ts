import { CancellationScope, log, setCurrentDetails, sleep } from '@temporalio/workflow';
import type { PaymentRef } from '../db/values.js';
import { nameOf } from './inbox.js';
import type { SettleResult } from './messages.js';
import * as steps from './steps.js';

const longestPauseMs = 3_600_000;

/**
 * Settles a recorded payment whose hold's workflow has ended. It asks confirm first, always: an
 * ended workflow does not mean an ended hold. Shielded from cancellation: the money is there, and
 * somebody must say what becomes of it.
 */
export async function settlePayment(holdId: string, payment: PaymentRef): Promise<SettleResult> {
  return CancellationScope.nonCancellable(async () => {
    for (let pauseMs = 30_000; ; pauseMs = Math.min(longestPauseMs, 2 * pauseMs)) {
      const settled = await settle(payment, new Set());
      if (settled !== undefined) return settled;
      setCurrentDetails('Another payment of the hold stays pending: asked again later');
      await sleep(pauseMs, { summary: 'pause before the next try' });
    }
  });

  /** Undefined when a payment that must come first stays in the way. */
  async function settle(ref: PaymentRef, tried: Set<string>): Promise<SettleResult | undefined> {
    for (;;) {
      const confirmed = await steps.confirm(holdId, ref);
      if (confirmed.outcome === 'MISSING')
        log.error('a payment to settle is unknown', { holdId, payment: nameOf(ref) });
      if (confirmed.outcome !== 'PAYMENT_PENDING') return confirmed;
      const first = nameOf(confirmed.payment);
      if (tried.has(first)) return undefined;
      tried.add(first);
      await settle(confirmed.payment, tried);
    }
  }
}
