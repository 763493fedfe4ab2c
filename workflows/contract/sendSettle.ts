import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from '@temporalio/client';
import type { Client } from '@temporalio/client';
import type { DecidePaymentOutcome } from '../../db/decidePayment.js';
import type { PaymentRef } from '../../db/values.js';
import { settleWorkflowId } from '../ids.js';
import { decide } from '../messages.js';
import type { DecisionRequest } from '../messages.js';
import type { settlePayment } from '../settlePayment.js';
import { taskQueues } from '../taskQueues.js';
import { failed } from './failures.js';
import type { Holds, Sent } from './send.js';
import { pause, within } from './within.js';

/** Before an update is sent again whose run has ended, or whose task was refused. */
const pauseMs = 50;

/**
 * Starts the settlement of a recorded payment, or finds it running. Safe to repeat: Postgres says
 * what is left to do, and a second run after a completed one changes nothing. Never throws.
 */
export async function sendSettle(
  holds: Holds,
  holdId: string,
  payment: PaymentRef,
  { withinMs }: { withinMs: number },
): Promise<Extract<Sent<never>, { outcome: 'SENT' | 'NO_ANSWER' | 'UNAVAILABLE' }>> {
  const { client } = holds;
  const start = () =>
    client.workflow.start<typeof settlePayment>(
      'settlePayment',
      startOptions(holds, holdId, payment),
    );
  const work = client.withDeadline(Date.now() + withinMs, start).then(
    () => ({ outcome: 'SENT' }) as const,
    (error: unknown) => unanswered(error),
  );
  const late = { outcome: 'NO_ANSWER', detail: `no answer within ${withinMs} ms` } as const;
  return within<Awaited<typeof work> | typeof late>(withinMs, work, late);
}

/**
 * An operator's decision about a payment in review, for the settlement that waits for it; one that
 * was terminated is started again by it. Never throws.
 */
export async function sendDecision(
  { client, ...holds }: Holds,
  holdId: string,
  payment: PaymentRef,
  request: DecisionRequest,
  { withinMs }: { withinMs: number },
): Promise<
  Extract<Sent<DecidePaymentOutcome>, { outcome: 'ANSWERED' | 'NO_ANSWER' | 'UNAVAILABLE' }>
> {
  const options = startOptions({ client, ...holds }, holdId, payment);
  const ask = async () => ({
    outcome: 'ANSWERED' as const,
    answer: await client.workflow.executeUpdateWithStart(decide, {
      args: [request],
      // With the decision: a stored answer must not hide that the same key decides otherwise.
      updateId: `decide:${request.requestId}:${request.decision}`,
      startWorkflowOperation: new WithStartWorkflowOperation<typeof settlePayment>(
        'settlePayment',
        options,
      ),
    }),
  });
  return persist(client, ask, withinMs);
}

/** Asks until there is an answer, or time is up. */
export async function persist<Answer>(
  client: Client,
  ask: () => Promise<{ outcome: 'ANSWERED'; answer: Answer }>,
  withinMs: number,
): Promise<Extract<Sent<Answer>, { outcome: 'ANSWERED' | 'NO_ANSWER' | 'UNAVAILABLE' }>> {
  const endsAt = Date.now() + withinMs;
  const work = async () => {
    for (;;) {
      try {
        return await client.withDeadline(endsAt, ask);
      } catch (error) {
        const why = failed(error);
        // The run ended while the question waited in it, or its task was refused: asked again.
        const again = why.outcome === 'RUN_ENDED' || why.outcome === 'NOT_READY';
        if (!again || Date.now() + pauseMs > endsAt) return unanswered(error);
        await pause(pauseMs);
      }
    }
  };
  const late = { outcome: 'NO_ANSWER', detail: `no answer within ${withinMs} ms` } as const;
  return within<Awaited<ReturnType<typeof work>> | typeof late>(withinMs, work(), late);
}

function startOptions({ prefix }: Holds, holdId: string, { provider, paymentId }: PaymentRef) {
  return {
    workflowId: settleWorkflowId({ provider, paymentId }),
    taskQueue: taskQueues(prefix).effects,
    args: [holdId, { provider, paymentId }] as [string, PaymentRef],
    staticSummary: `payment ${paymentId} of hold ${holdId}`,
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
  };
}

export function unanswered(error: unknown) {
  const why = failed(error);
  const detail = 'detail' in why ? why.detail : why.outcome;
  return why.outcome === 'NO_ANSWER'
    ? ({ outcome: 'NO_ANSWER', detail } as const)
    : ({ outcome: 'UNAVAILABLE', detail, certain: false } as const);
}
