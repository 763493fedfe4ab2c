import { Context } from '@temporalio/activity';
import { DatabaseFault } from '../db/faults.js';

const heartbeatEveryMs = 1000;

/**
 * One try of an activity. It heartbeats, so that a killed worker is noticed after 4 s. It is never
 * given up in the middle: the statement would go on without us, and its answer would be lost.
 */
export async function attempt<T>(work: () => Promise<T>): Promise<T> {
  const context = Context.current();
  const { activityType, attempt: number, isLocal } = context.info;
  const beat = isLocal ? undefined : setInterval(() => void context.heartbeat(), heartbeatEveryMs);
  const cancelled = () => {
    context.log.warn(
      `${activityType}: ${String(context.cancellationSignal.reason)} during attempt ${number}; ` +
        'it goes on, and if its answer is lost a repeat finds it',
    );
  };
  context.cancellationSignal.addEventListener('abort', cancelled, { once: true });
  try {
    return await work();
  } catch (error) {
    throw error instanceof DatabaseFault ? named(error) : error;
  } finally {
    clearInterval(beat);
    context.cancellationSignal.removeEventListener('abort', cancelled);
  }
}

/** The error's name is what Temporal shows as the failure's type: "STOCK_LOCK_TIMEOUT", not "Error". */
function named(fault: DatabaseFault): Error {
  const error = new Error(fault.message, { cause: fault });
  error.name = fault.code;
  return error;
}
