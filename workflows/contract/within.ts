/**
 * What `work` says, or `late` when it says nothing in time. Our own timer, because neither a
 * deadline nor an abort signal ends the client's retries: with Temporal away they took 3 to 28 s.
 */
export async function within<T>(ms: number, work: Promise<T>, late: T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(late), Math.max(0, ms));
  });
  try {
    return await Promise.race([work, timeUp]);
  } finally {
    clearTimeout(timer);
    // Nobody listens to work that comes too late; its failure must not end the process.
    work.catch(() => {});
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
