/** Where the workflows run. A prefix keeps installations, and tests, on one server apart. */
export interface TaskQueues {
  /** Holds, with their claims and changes. */
  holds: string;
  /** Payments to settle and refunds: kept apart, so that a slow provider can't delay an expiry. */
  effects: string;
}

const holds = 'tahan-holds';
const effects = 'tahan-effects';

export function taskQueues(prefix: string): TaskQueues {
  return { holds: `${prefix}${holds}`, effects: `${prefix}${effects}` };
}

/** The effects queue of the installation that a workflow runs in, told from its own queue. */
export function effectsQueueBeside(taskQueue: string): string {
  const own = [holds, effects].find((name) => taskQueue.endsWith(name)) ?? '';
  return taskQueues(taskQueue.slice(0, taskQueue.length - own.length)).effects;
}

/** TAHAN_TASK_QUEUE_PREFIX; empty by default. API and worker must agree on it. */
export function taskQueuePrefix(env: NodeJS.ProcessEnv = process.env): string {
  return env['TAHAN_TASK_QUEUE_PREFIX'] ?? '';
}
