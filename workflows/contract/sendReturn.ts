import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from '@temporalio/client';
import type { ReturnOutcome, ReturnRefund } from '../../db/returnSale.js';
import { refundWorkflowId, returnWorkflowId } from '../ids.js';
import { wordsFor } from '../lines.js';
import { returned } from '../messages.js';
import type { ReturnRequest } from '../messages.js';
import type { refund } from '../refund.js';
import type { returnSale } from '../returnSale.js';
import { taskQueues } from '../taskQueues.js';
import type { Holds, Sent } from './send.js';
import { persist, unanswered } from './sendSettle.js';
import { within } from './within.js';

/** Both may run again after they have ended: Postgres says what is left to do. */
const once = {
  workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
  workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
} as const;

/**
 * An operator's return of a hold that was sold: its workflow carries it out, also when nobody waits for
 * the answer any more. Safe to repeat with its request id. Never throws.
 */
export async function sendReturn(
  { client, prefix }: Holds,
  request: ReturnRequest,
  { withinMs }: { withinMs: number },
): Promise<Extract<Sent<ReturnOutcome>, { outcome: 'ANSWERED' | 'NO_ANSWER' | 'UNAVAILABLE' }>> {
  // Of its own: a stored answer must not hide that the same key asks for something else, nor that the
  // refund has been refused since.
  const updateId = `returned:${crypto.randomUUID()}`;
  const { holdId, requestId, lines } = request;
  const start = {
    workflowId: returnWorkflowId(holdId, requestId),
    taskQueue: taskQueues(prefix).effects,
    args: [request] as [ReturnRequest],
    staticSummary: `return of ${lines === null ? 'all' : wordsFor(lines)}`,
    ...once,
  };
  const ask = async () => ({
    outcome: 'ANSWERED' as const,
    answer: await client.workflow.executeUpdateWithStart(returned, {
      args: [request],
      updateId,
      startWorkflowOperation: new WithStartWorkflowOperation<typeof returnSale>(
        'returnSale',
        start,
      ),
    }),
  });
  return persist(client, ask, withinMs);
}

/** Starts a return's refund whose workflow may have been lost, or finds it running. Never throws. */
export async function sendRefund(
  { client, prefix }: Holds,
  holdId: string,
  { provider, paymentId, cause, amountMinor, currency }: ReturnRefund,
  { withinMs }: { withinMs: number },
): Promise<Extract<Sent<never>, { outcome: 'SENT' | 'NO_ANSWER' | 'UNAVAILABLE' }>> {
  const payment = { provider, paymentId };
  const start = () =>
    client.workflow.start<typeof refund>('refund', {
      workflowId: refundWorkflowId(payment, cause),
      taskQueue: taskQueues(prefix).effects,
      args: [holdId, payment, cause],
      staticSummary: `refund ${amountMinor} ${currency} (minor units) of payment ${paymentId}`,
      ...once,
    });
  const work = client.withDeadline(Date.now() + withinMs, start).then(
    () => ({ outcome: 'SENT' }) as const,
    (error: unknown) => unanswered(error),
  );
  const late = { outcome: 'NO_ANSWER', detail: `no answer within ${withinMs} ms` } as const;
  return within<Awaited<typeof work> | typeof late>(withinMs, work, late);
}
