/** Workflows that a workflow leaves behind: they outlive it, and each runs once at a time. */
import {
  ParentClosePolicy,
  WorkflowIdReusePolicy,
  getExternalWorkflowHandle,
  log,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { ReturnRefund } from '../db/returnSale.js';
import type { PaymentRef } from '../db/values.js';
import { refundWorkflowId, settleWorkflowId } from './ids.js';
import { sendAgain } from './messages.js';
import type { refund } from './refund.js';
import type { settlePayment } from './settlePayment.js';
import { queuesBeside } from './taskQueues.js';

/**
 * A second run is allowed: Postgres says what is left to do, and a refund whose workflow was
 * terminated must not be lost. "Already started" means that one is at it.
 */
function leftBehind(workflowId: string, staticSummary: string) {
  return {
    workflowId,
    taskQueue: queuesBeside(workflowInfo().taskQueue).effects,
    staticSummary,
    parentClosePolicy: ParentClosePolicy.ABANDON,
    workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
  };
}

/** Resolves when it has started: a parent that closes earlier would take it along. */
export async function startSettlement(holdId: string, payment: PaymentRef): Promise<void> {
  const { provider, paymentId } = payment;
  const options = leftBehind(settleWorkflowId(payment), `payment ${paymentId} of hold ${holdId}`);
  await unlessRunning(
    startChild<typeof settlePayment>('settlePayment', {
      ...options,
      args: [holdId, { provider, paymentId }],
    }),
  );
}

/** Resolves when it has started; false when it runs already. */
export async function startRefund(
  holdId: string,
  payment: PaymentRef,
  { cause, amountMinor, currency }: { cause: string; amountMinor: number; currency: string },
): Promise<boolean> {
  const { provider, paymentId } = payment;
  const summary = `refund ${amountMinor} ${currency} (minor units) of payment ${paymentId}`;
  return unlessRunning(
    startChild<typeof refund>('refund', {
      ...leftBehind(refundWorkflowId(payment, cause), summary),
      args: [holdId, { provider, paymentId }, cause],
    }),
  );
}

/**
 * A return's refund, which may run and be just about to end as refused: it is then told that it was
 * asked for again. Where it has ended meanwhile, the next start finds nobody in its way.
 */
export async function startRefundOfReturn(holdId: string, refund: ReturnRefund): Promise<void> {
  const running = getExternalWorkflowHandle(refundWorkflowId(refund, refund.cause));
  for (;;) {
    if (await startRefund(holdId, refund, refund)) return;
    try {
      return await running.signal(sendAgain);
    } catch {
      log.info('the refund had just ended: it is started again', { holdId });
    }
  }
}

/** False when it runs already. */
async function unlessRunning(started: Promise<unknown>): Promise<boolean> {
  try {
    await started;
    return true;
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    return false;
  }
}
