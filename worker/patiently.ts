import { setTimeout as sleep } from 'node:timers/promises';

const firstPauseMs = 250;
const longestPauseMs = 5000;

/**
 * Does `work` until it succeeds: a worker that starts before its servers waits for them. What
 * `isFatal` recognises is thrown at once; so is an abort.
 */
export async function patiently<T>(
  work: () => Promise<T>,
  { signal, isFatal = () => false, failed }: PatienceOptions,
): Promise<T> {
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(longestPauseMs, 2 * pauseMs)) {
    signal.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      if (isFatal(error)) throw error;
      failed(error, pauseMs);
    }
    await sleep(pauseMs, undefined, { signal });
  }
}

export interface PatienceOptions {
  signal: AbortSignal;
  isFatal?: (error: unknown) => boolean;
  failed: (error: unknown, nextTryInMs: number) => void;
}
