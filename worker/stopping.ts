/** Why this process should end; the promise settles once. */
export interface Stopping {
  readonly signal: AbortSignal;
  readonly why: Promise<string>;
}

/** How long a process without its parent may still take: nothing may be left behind. */
const orphanGraceMs = 3000;

/**
 * Listens for SIGTERM and SIGINT, and with `exitWithParent` for the end of stdin, which is the
 * parent's pipe. A second signal ends the process at once, which is as safe as kill -9: no promise
 * rests on a graceful stop.
 */
export function listenForStop({ exitWithParent }: { exitWithParent: boolean }): Stopping {
  const controller = new AbortController();
  const why = new Promise<string>((resolve) => {
    const stop = (reason: string) => {
      if (controller.signal.aborted) process.exit(1);
      controller.abort(reason);
      resolve(reason);
    };
    process.on('SIGTERM', () => stop('SIGTERM'));
    process.on('SIGINT', () => stop('SIGINT'));
    if (exitWithParent) {
      const orphaned = () => {
        if (!controller.signal.aborted) stop('the parent has ended');
        setTimeout(() => process.exit(1), orphanGraceMs).unref();
      };
      process.stdin.on('error', orphaned).on('close', orphaned).on('end', orphaned).resume();
    }
  });
  return { signal: controller.signal, why };
}
