import { Context } from '@temporalio/activity';
import { DatabaseFault } from '../db/faults.js';
import type { FaultCode } from '../db/faults.js';

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
    if (!(error instanceof DatabaseFault)) throw error;
    throw new faults[error.code](error.message, { cause: error });
  } finally {
    clearInterval(beat);
    context.cancellationSignal.removeEventListener('abort', cancelled);
  }
}

/**
 * Temporal shows the name of the error's class as the failure's type, and each class here is named
 * by its key: an operator reads "STOCK_LOCK_TIMEOUT", not "DatabaseFault".
 */
const faults: Record<FaultCode, new (message: string, options: { cause: unknown }) => Error> = {
  RESERVATION_IN_PROGRESS: class extends Error {},
  STOCK_LEDGER_BUSY: class extends Error {},
  STOCK_LOCK_TIMEOUT: class extends Error {},
  DATABASE_UNAVAILABLE: class extends Error {},
};
