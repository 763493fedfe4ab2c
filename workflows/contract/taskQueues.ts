/** Where the workflows run. A prefix keeps installations, and tests, on one server apart. */
export interface TaskQueues {
  /** Holds, with their claims and changes. */
  holds: string;
  /** Payments to settle: kept apart, so that a slow provider can't delay an expiry. */
  effects: string;
}

export function taskQueues(prefix: string): TaskQueues {
  return { holds: `${prefix}tahan-holds`, effects: `${prefix}tahan-effects` };
}

/** TAHAN_TASK_QUEUE_PREFIX; empty by default. API and worker must agree on it. */
export function taskQueuePrefix(env: NodeJS.ProcessEnv = process.env): string {
  return env['TAHAN_TASK_QUEUE_PREFIX'] ?? '';
}
