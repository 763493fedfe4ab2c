import {
  CancellationScope,
  allHandlersFinished,
  condition,
  log,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { DecidePaymentOutcome } from '../db/decidePayment.js';
import type { PaymentRef, Settlement } from '../db/values.js';
import { startRefund } from './effects.js';
import { demand, fieldsOf, isText, nameOf } from './inbox.js';
import { decide } from './messages.js';
import type { DecisionRequest, SettleResult } from './messages.js';
import * as steps from './steps.js';

const firstPauseMs = 30_000;
const longestPauseMs = 3_600_000;

/** A question of an operator, who waits until the answer is written into it. */
interface Asked {
  request: DecisionRequest;
  answer?: DecidePaymentOutcome;
}

/**
 * Settles a recorded payment that did not simply confirm its hold. It asks confirm first, always: an
 * ended workflow does not mean an ended hold. What is to go back gets a refund of its own; what
 * needs a review waits here for an operator. Shielded from cancellation: the money is there, and
 * somebody must say what becomes of it.
 */
export async function settlePayment(holdId: string, payment: PaymentRef): Promise<SettleResult> {
  const asked: Asked[] = [];
  setHandler(decide, ask, {
    validator: (request: unknown) => demand(isDecision(request), 'decision', request),
  });

  return CancellationScope.nonCancellable(async () => {
    let pauseMs = firstPauseMs;
    for (;;) {
      const settled = await settle(payment, new Set());
      if (settled === undefined) {
        setCurrentDetails('Another payment of the hold stays pending: asked again later');
        await condition(() => asked.length > 0, pauseMs, { summary: 'pause before the next try' });
        pauseMs = Math.min(longestPauseMs, 2 * pauseMs);
      } else if (settled.settlement === 'NEEDS_REVIEW') {
        setCurrentDetails('Waiting for an operator: accept or refund');
        await condition(() => asked.length > 0);
      } else {
        setCurrentDetails(`${settled.outcome}, ${settled.settlement ?? 'no settlement'}`);
        await condition(() => asked.length > 0 || allHandlersFinished());
        // With no await since: a decision that came in the meantime is not lost.
        if (asked.length === 0) return settled;
      }
      for (let next = asked.shift(); next; next = asked.shift())
        next.answer = await steps.decidePayment(payment, next.request);
    }
  });

  function ask(request: DecisionRequest): Promise<DecidePaymentOutcome> {
    return CancellationScope.nonCancellable(async () => {
      const question: Asked = { request };
      asked.push(question);
      await condition(() => question.answer !== undefined);
      return question.answer!;
    });
  }

  /** Undefined when a payment that must come first stays in the way. */
  async function settle(ref: PaymentRef, tried: Set<string>): Promise<SettleResult | undefined> {
    for (;;) {
      const confirmed = await steps.confirm(holdId, ref);
      if (confirmed.outcome === 'PAYMENT_PENDING') {
        const first = nameOf(confirmed.payment);
        if (tried.has(first)) return undefined;
        tried.add(first);
        await settle(confirmed.payment, tried);
        continue;
      }
      if (confirmed.outcome === 'MISSING')
        log.error('a payment to settle is unknown', { holdId, payment: nameOf(ref) });
      return { outcome: confirmed.outcome, settlement: await refundWhatIsDue(ref) };
    }
  }

  async function refundWhatIsDue(ref: PaymentRef): Promise<Settlement | null> {
    const due = await steps.requestRefund(ref);
    if (due.outcome === 'MISSING') return null;
    if (due.outcome === 'NOT_DUE') return due.settlement;
    await startRefund(holdId, ref, due);
    return 'REFUND_DUE';
  }
}

function isDecision(request: unknown): boolean {
  const { decision, reason, actor, requestId } = fieldsOf<DecisionRequest>(request);
  return (
    (decision === 'accept' || decision === 'refund') &&
    isText(reason, 500) &&
    isText(actor, 255) &&
    isText(requestId, 300)
  );
}
