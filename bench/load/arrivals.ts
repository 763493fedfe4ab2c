import { setTimeout as sleep } from 'node:timers/promises';
import type { Arrivals } from './plan.js';

/**
 * Begins visits as planned, until all have ended. Each is told the moment at which it was *meant* to
 * begin: an open loop that falls behind (its process or its connections are busy) must count that
 * wait too, or a server that stalls would look quick (coordinated omission).
 *
 * @param visit never rejects
 * @param stopped begins no more visits
 */
export async function arrive(
  arrivals: Arrivals,
  visit: (number: number, intendedMs: number) => Promise<void>,
  stopped: AbortSignal,
): Promise<void> {
  if (arrivals.kind === 'closed') return closed(arrivals, visit, stopped);
  const startedMs = Date.now();
  const count = arrivals.kind === 'at' ? arrivals.timesMs.length : arrivals.count;
  const due = (number: number) =>
    arrivals.kind === 'at'
      ? arrivals.timesMs[number]!
      : startedMs + (number * 1000) / arrivals.perSecond;
  const running: Promise<void>[] = [];
  for (let next = 0; next < count && !stopped.aborted;) {
    // All that are due by now, however late it is.
    for (; next < count && due(next) <= Date.now(); next += 1) {
      running.push(visit(next, due(next)));
    }
    if (next < count) {
      const waitMs = Math.max(1, Math.min(1000, due(next) - Date.now()));
      await sleep(waitMs, undefined, { signal: stopped }).catch(() => undefined);
    }
  }
  await Promise.all(running);
}

async function closed(
  arrivals: Extract<Arrivals, { kind: 'closed' }>,
  visit: (number: number, intendedMs: number) => Promise<void>,
  stopped: AbortSignal,
): Promise<void> {
  const endsMs = 'seconds' in arrivals ? Date.now() + arrivals.seconds * 1000 : Infinity;
  const count = 'count' in arrivals ? arrivals.count : Infinity;
  let begun = 0;
  await Promise.all(
    Array.from({ length: arrivals.clients }, async () => {
      while (begun < count && Date.now() < endsMs && !stopped.aborted) {
        await visit(begun++, Date.now());
      }
    }),
  );
}
