import { WorkflowIdConflictPolicy, WorkflowIdReusePolicy } from '@temporalio/client';
import type { PaymentRef } from '../../db/values.js';
import type { settlePayment } from '../settlePayment.js';
import { failed } from './failures.js';
import { settleWorkflowId } from './ids.js';
import type { Holds, Sent } from './send.js';
import { taskQueues } from './taskQueues.js';
import { within } from './within.js';

/**
 * Starts the settlement of a recorded payment whose hold's workflow has ended. Safe to repeat:
 * one workflow per payment; ENDED means that it is settled. Never throws.
 */
export async function sendSettle(
  { client, prefix }: Holds,
  holdId: string,
  payment: PaymentRef,
  { withinMs }: { withinMs: number },
): Promise<Exclude<Sent<never>, { outcome: 'ANSWERED' | 'TOO_LATE' }>> {
  const { provider, paymentId } = payment;
  const start = () =>
    client.workflow.start<typeof settlePayment>('settlePayment', {
      workflowId: settleWorkflowId(payment),
      taskQueue: taskQueues(prefix).effects,
      args: [holdId, { provider, paymentId }],
      staticSummary: `payment ${paymentId} of hold ${holdId}`,
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
      workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
    });
  const work = client.withDeadline(Date.now() + withinMs, start).then(
    () => ({ outcome: 'SENT' }) as const,
    (error: unknown) => {
      const why = failed(error);
      if (why.outcome === 'ENDED') return why;
      const detail = 'detail' in why ? why.detail : why.outcome;
      return why.outcome === 'NO_ANSWER'
        ? ({ outcome: 'NO_ANSWER', detail } as const)
        : ({ outcome: 'UNAVAILABLE', detail, certain: false } as const);
    },
  );
  const late = { outcome: 'NO_ANSWER', detail: `no answer within ${withinMs} ms` } as const;
  return within<Awaited<typeof work> | typeof late>(withinMs, work, late);
}
