import { setTimeout as sleep } from 'node:timers/promises';

/** Asks again every few milliseconds until the fact holds; false when it did not within the time. */
export async function until(
  fact: () => boolean | Promise<boolean>,
  withinMs: number,
  everyMs = 50,
): Promise<boolean> {
  const end = performance.now() + withinMs;
  for (;;) {
    if (await fact()) return true;
    if (performance.now() > end) return false;
    await sleep(everyMs);
  }
}
