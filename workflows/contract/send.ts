import {
  WithStartWorkflowOperation,
  WorkflowFailedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from '@temporalio/client';
import type { Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { CancelOutcome } from '../../db/cancel.js';
import type { ExtendOutcome } from '../../db/extend.js';
import type { Release, ReleaseOutcome } from '../../db/release.js';
import type { hold } from '../hold.js';
import { cancel, claimed, extend, paymentReceived, release } from '../messages.js';
import type { Claimed, HoldRequest, PaymentSignal } from '../messages.js';
import { countingDeadline } from './connect.js';
import { failed } from './failures.js';
import type { Failed } from './failures.js';
import { holdStartOptions, shortHash } from './start.js';
import { pause, within } from './within.js';

/** Before an update is sent again whose task was refused. */
const pauseMs = 50;

/** The way to the holds' workflows. */
export interface Holds {
  client: Client;
  /** Of the task queues: `taskQueuePrefix()`. */
  prefix: string;
  /** Whether `checkSearchAttributes` said REGISTERED. */
  indexed: boolean;
}

export type Message =
  /** Waits for the claim's answer. */
  | { kind: 'claimed' }
  | { kind: 'cancel'; reason: string; actor: string; requestId: string }
  | { kind: 'extend'; seconds: number; actor: string; requestId: string }
  | ({ kind: 'release' } & Release)
  | { kind: 'payment'; payment: PaymentSignal }
  /** Makes sure that the workflow runs; nothing is asked. */
  | { kind: 'start' }
  /** The same for a HELD row, also when its workflow has completed (a restored database). */
  | { kind: 'adopt' };

export interface Answers {
  claimed: Claimed;
  cancel: CancelOutcome;
  extend: ExtendOutcome;
  release: ReleaseOutcome;
  payment: never;
  start: never;
  adopt: 'STARTED' | 'RUNNING';
}

export type Sent<Answer> =
  | { outcome: 'ANSWERED'; answer: Answer }
  /** Temporal has it: it will be handled, also when no worker runs now. */
  | { outcome: 'SENT' }
  /** The hold's workflow has completed, and this message is not in it: ask Postgres. */
  | { outcome: 'ENDED' }
  /** The claim came after its deadline: nothing is held by it, and the same key may be sent again. */
  | { outcome: 'TOO_LATE' }
  /** Nothing within time: it may happen still. */
  | { outcome: 'NO_ANSWER'; detail: string }
  /** Temporal can't be reached or refuses. `certain`: no try had a connection, so nothing has left this process. */
  | { outcome: 'UNAVAILABLE'; detail: string; certain: boolean };

/**
 * Sends one message to one hold, and starts its workflow when none runs: so a hold whose workflow
 * was terminated is adopted by whatever comes next, and a finished one is never started again.
 * Never throws, and answers by `withinMs` whatever Temporal does.
 */
export async function send<Kind extends Message['kind']>(
  holds: Holds,
  request: HoldRequest,
  message: Extract<Message, { kind: Kind }>,
  { withinMs }: { withinMs: number },
): Promise<Sent<Answers[Kind]>> {
  const { deadline, tries } = countingDeadline(Date.now() + withinMs);
  const late = { outcome: 'NO_ANSWER', detail: `no answer within ${withinMs} ms` } as const;
  const work = deliver(holds, request, message, deadline).catch(
    (error: unknown) => ({ outcome: 'UNAVAILABLE', detail: String(error) }) as const,
  );
  const sent = await within(withinMs, work, late);
  if (sent.outcome === 'UNAVAILABLE')
    return { ...sent, certain: tries.ended > 0 && tries.ended === tries.withoutConnection };
  return sent as Sent<Answers[Kind]>;
}

type Delivered =
  | Exclude<Sent<Answers[Message['kind']]>, { outcome: 'UNAVAILABLE' }>
  | { outcome: 'UNAVAILABLE'; detail: string };

async function deliver(
  holds: Holds,
  request: HoldRequest,
  message: Message,
  deadline: Date,
): Promise<Delivered> {
  let runsEnded = 0;
  for (;;) {
    const sent = await attempt(holds, request, message, deadline);
    switch (sent.outcome) {
      case 'NOT_INDEXED':
        if (!request.indexed) return { outcome: 'UNAVAILABLE', detail: sent.detail };
        request = { ...request, indexed: false };
        break;
      case 'NOT_READY':
        if (Date.now() + pauseMs > deadline.getTime())
          return { outcome: 'NO_ANSWER', detail: sent.detail };
        await pause(pauseMs);
        break;
      case 'RUN_ENDED': {
        // Failed or terminated runs are replaced by the second try, completed ones say ENDED.
        const own = message.kind === 'claimed' && (await endedTooLate(holds.client, request));
        if (own) return { outcome: 'TOO_LATE' };
        runsEnded += 1;
        if (runsEnded > 1 || Date.now() > deadline.getTime())
          return { outcome: 'NO_ANSWER', detail: 'the run ended before it answered' };
        break;
      }
      default:
        return sent;
    }
  }
}

/** One call with the policies that every message has. */
async function attempt(
  { client, prefix }: Holds,
  request: HoldRequest,
  message: Message,
  deadline: Date,
): Promise<Delivered | Failed> {
  const start = {
    ...(await holdStartOptions(prefix, request)),
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
  };
  const withStart = () => new WithStartWorkflowOperation<typeof hold>('hold', start);
  const call = async (): Promise<Delivered> => {
    const { workflow } = client;
    switch (message.kind) {
      case 'claimed': {
        // The id is fixed: a repeat joins the first one, or reads its stored answer.
        const options = { updateId: 'claimed', startWorkflowOperation: withStart() };
        const answer = await workflow.executeUpdateWithStart(claimed, options);
        return { outcome: 'ANSWERED', answer };
      }
      case 'cancel': {
        const { reason, actor, requestId } = message;
        const answer = await workflow.executeUpdateWithStart(cancel, {
          args: [{ reason, actor }],
          updateId: `cancel:${requestId}`,
          startWorkflowOperation: withStart(),
        });
        return { outcome: 'ANSWERED', answer };
      }
      case 'extend': {
        const { seconds, actor, requestId } = message;
        const answer = await workflow.executeUpdateWithStart(extend, {
          args: [{ seconds, actor, requestId }],
          // With the seconds: a stored answer must not hide that the same key asks for something else.
          updateId: `extend:${requestId}:${seconds}`,
          startWorkflowOperation: withStart(),
        });
        return { outcome: 'ANSWERED', answer };
      }
      case 'release': {
        const { lines, reason, actor, requestId } = message;
        const answer = await workflow.executeUpdateWithStart(release, {
          args: [{ lines, reason, actor, requestId }],
          // With what is asked, for the same reason.
          updateId: `release:${requestId}:${await shortHash(JSON.stringify([lines, reason]))}`,
          startWorkflowOperation: withStart(),
        });
        return { outcome: 'ANSWERED', answer };
      }
      case 'payment':
        await workflow.signalWithStart<typeof hold, [PaymentSignal]>('hold', {
          ...start,
          signal: paymentReceived,
          signalArgs: [message.payment],
        });
        return { outcome: 'SENT' };
      case 'start':
        await workflow.start<typeof hold>('hold', start);
        return { outcome: 'SENT' };
      case 'adopt':
        await workflow.start<typeof hold>('hold', {
          ...start,
          workflowIdConflictPolicy: WorkflowIdConflictPolicy.FAIL,
          workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
        });
        return { outcome: 'ANSWERED', answer: 'STARTED' };
    }
  };
  try {
    return await client.withDeadline(deadline, call);
  } catch (error) {
    const why = failed(error);
    return message.kind === 'adopt' && why.outcome === 'ENDED'
      ? { outcome: 'ANSWERED', answer: 'RUNNING' }
      : why;
  }
}

/**
 * Whether the last run ended as CLAIM_TOO_LATE by this caller's own deadline. A caller that had
 * joined another's dying run starts once more, with its own.
 */
async function endedTooLate(client: Client, request: HoldRequest): Promise<boolean> {
  const { workflowId } = await holdStartOptions('', request);
  try {
    const { runId, status } = await client.workflow.getHandle(workflowId).describe();
    if (status.name !== 'FAILED') return false;
    await client.workflow.getHandle(workflowId, runId, { followRuns: false }).result();
    return false;
  } catch (error) {
    const cause = error instanceof WorkflowFailedError ? error.cause : undefined;
    return (
      cause instanceof ApplicationFailure &&
      cause.type === 'CLAIM_TOO_LATE' &&
      cause.details?.[0] === request.claimDeadline
    );
  }
}
