import {
  ServiceError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from '@temporalio/client';
import {
  ApplicationFailure,
  WorkflowExecutionAlreadyStartedError,
  WorkflowNotFoundError,
} from '@temporalio/common';

/** What a failed call to Temporal means for the caller. */
export type Failed =
  /** The workflow has completed: Postgres has the answer. */
  | { outcome: 'ENDED' }
  /** The run ended while our update waited in it. */
  | { outcome: 'RUN_ENDED' }
  /** The task with our update was refused, and the update with it: it must be sent again. */
  | { outcome: 'NOT_READY'; detail: string }
  /** The server does not know our search attributes (yet, or any more). */
  | { outcome: 'NOT_INDEXED'; detail: string }
  | { outcome: 'NO_ANSWER'; detail: string }
  | { outcome: 'UNAVAILABLE'; detail: string };

/** gRPC status codes with a meaning of their own. */
const cancelled = 1;
const invalidArgument = 3;
const deadlineExceeded = 4;
const notFound = 5;
const failedPrecondition = 9;

/** Every error class that the client was seen to throw, and a default for the others. */
export function failed(error: unknown): Failed {
  const detail = describe(error);
  if (error instanceof WorkflowExecutionAlreadyStartedError) return { outcome: 'ENDED' };
  if (error instanceof WorkflowNotFoundError) return { outcome: 'RUN_ENDED' };
  if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError)
    return { outcome: 'NO_ANSWER', detail };
  if (error instanceof WorkflowUpdateFailedError) {
    const { cause } = error;
    return cause instanceof ApplicationFailure && cause.type === 'AcceptedUpdateCompletedWorkflow'
      ? { outcome: 'RUN_ENDED' }
      : { outcome: 'NO_ANSWER', detail };
  }
  switch (codeOf(error)) {
    case cancelled:
    case deadlineExceeded:
      return { outcome: 'NO_ANSWER', detail };
    case invalidArgument:
      if (/search attribute/i.test(detail)) return { outcome: 'NOT_INDEXED', detail };
      break;
    case notFound:
      return { outcome: 'RUN_ENDED' };
    case failedPrecondition:
      return { outcome: 'NOT_READY', detail };
  }
  return { outcome: 'UNAVAILABLE', detail };
}

/** The client wraps what gRPC says, except for the parts of an update-with-start, which come bare. */
function codeOf(error: unknown): unknown {
  const at = error instanceof ServiceError ? error.cause : error;
  return (at as { code?: unknown } | undefined)?.code;
}

/** The message with its causes: the reason is usually the last of them. */
function describe(error: unknown): string {
  const words: string[] = [];
  for (let at: unknown = error; at instanceof Error && words.length < 5; at = at.cause)
    words.push(at.message);
  return words.join(': ') || String(error);
}
