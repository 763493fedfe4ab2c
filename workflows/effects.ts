/** Workflows that a workflow leaves behind: they outlive it, and each runs once at a time. */
import {
  ParentClosePolicy,
  WorkflowIdReusePolicy,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { PaymentRef } from '../db/values.js';
import { refundWorkflowId, settleWorkflowId } from './ids.js';
import type { refund } from './refund.js';
import type { settlePayment } from './settlePayment.js';
import { effectsQueueBeside } from './taskQueues.js';

/**
 * A second run is allowed: Postgres says what is left to do, and a refund whose workflow was
 * terminated must not be lost. "Already started" means that one is at it.
 */
function leftBehind(workflowId: string, staticSummary: string) {
  return {
    workflowId,
    taskQueue: effectsQueueBeside(workflowInfo().taskQueue),
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

/** Resolves when it has started. */
export async function startRefund(
  holdId: string,
  payment: PaymentRef,
  { cause, amountMinor, currency }: { cause: string; amountMinor: number; currency: string },
): Promise<void> {
  const { provider, paymentId } = payment;
  const summary = `refund ${amountMinor} ${currency} (minor units) of payment ${paymentId}`;
  await unlessRunning(
    startChild<typeof refund>('refund', {
      ...leftBehind(refundWorkflowId(payment, cause), summary),
      args: [holdId, { provider, paymentId }, cause],
    }),
  );
}

async function unlessRunning(started: Promise<unknown>): Promise<void> {
  try {
    await started;
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
  }
}
