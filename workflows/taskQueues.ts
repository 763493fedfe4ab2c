/** Where the workflows run. A prefix keeps installations, and tests, on one server apart. */
export interface TaskQueues {
  /** Holds, with their claims and changes. */
  holds: string;
  /** Expiries, and nothing else: thousands at once keep no confirmation waiting (F35). */
  expiries: string;
  /** Payments to settle and refunds: kept apart, so that a slow provider can't delay an expiry. */
  effects: string;
}

const names: TaskQueues = {
  holds: 'tahan-holds',
  expiries: 'tahan-expiries',
  effects: 'tahan-effects',
};

export function taskQueues(prefix: string): TaskQueues {
  return {
    holds: `${prefix}${names.holds}`,
    expiries: `${prefix}${names.expiries}`,
    effects: `${prefix}${names.effects}`,
  };
}

/** The queues of the installation that a workflow runs in, told from its own queue. */
export function queuesBeside(taskQueue: string): TaskQueues {
  const own = [names.holds, names.effects].find((name) => taskQueue.endsWith(name)) ?? '';
  return taskQueues(taskQueue.slice(0, taskQueue.length - own.length));
}

/** TAHAN_TASK_QUEUE_PREFIX; empty by default. API and worker must agree on it. */
export function taskQueuePrefix(env: NodeJS.ProcessEnv = process.env): string {
  return env['TAHAN_TASK_QUEUE_PREFIX'] ?? '';
}
