import { Worker } from '@temporalio/worker';
import type { NativeConnection, WorkflowBundleOption } from '@temporalio/worker';
import type { Activities } from '../activities/index.js';
import { Turns, inTurn } from '../activities/turns.js';
import { taskQueues } from '../workflows/contract.js';

export interface WorkersOptions {
  connection: NativeConnection;
  /** Passed on explicitly: a worker does not take it from its connection. */
  namespace: string;
  /** Of the task queues. */
  prefix: string;
  activities: Activities;
  workflowBundle: WorkflowBundleOption;
  /** Workflow tasks of holds at once. A local claim or expiry occupies one. */
  tasks?: number;
  /** Claims and first tries of expiries at once. They may be many: those that meet share a statement (activities/together.ts). */
  local?: number;
  /** Other changes at once. More than their pool has connections: so do confirmations (activities/changeTogether.ts). */
  changes?: number;
  /** Expiries at once: two full batches. */
  expiries?: number;
  /** More than connections: most of the time they wait for a provider. */
  effects?: number;
  cachedHolds?: number;
  /** So many ends of holds are looked at in a second, or a quarter as many as claims were made in one. */
  endsPerSecond?: number;
}

export interface Workers {
  /** Works until `stop`, or until something breaks. */
  run(): Promise<void>;
  /** Takes no new tasks, lets running activities end. Safe to call at any time. */
  stop(): void;
}

/** Longer than any activity: a deploy must not cut one off (F7). */
const shutdownGraceTime = '12 s';

/**
 * The workers of all task queues, in one process. The holds' own activities never wait behind a
 * settlement or an expiry.
 */
export async function createWorkers(options: WorkersOptions): Promise<Workers> {
  const { connection, namespace, workflowBundle } = options;
  const { tasks = 100, local = 100, changes = 64, expiries = 100, effects = 10 } = options;
  const { cachedHolds = 1000, endsPerSecond = 10 } = options;
  const activities = inTurn(options.activities, new Turns(endsPerSecond));
  const queues = taskQueues(options.prefix);
  const common = {
    connection,
    namespace,
    activities,
    shutdownGraceTime,
    // Else a beat is held back for 3.2 s, which leaves 0.8 s of the timeout's 4.
    maxHeartbeatThrottleInterval: '1 s',
  } as const;
  const workflows = {
    workflowBundle,
    // With the default a killed worker costs each of its open holds 10.3 s, with this 2.4 s.
    stickyQueueScheduleToStartTimeout: '2 s',
  } as const;
  const workers = await Promise.all([
    Worker.create({
      ...common,
      ...workflows,
      taskQueue: queues.holds,
      maxCachedWorkflows: cachedHolds,
      // A local claim occupies its hold's task. With slots to spare, payments and timers of other
      // holds don't wait behind a burst of claims (F35).
      maxConcurrentWorkflowTaskExecutions: tasks,
      // Half of the polls are for new holds, whose tasks are in the common queue. While more tasks of open holds wait
      // than polls are for them, the SDK leaves one poll for the common queue: with 5 and 5 claims took 30 s behind 15
      // ends a second on a slow machine, while 90 of 100 tasks were free (F35).
      workflowTaskPollerBehavior: { type: 'simple-maximum', maximum: 60 },
      nonStickyToStickyPollRatio: 0.5,
      maxConcurrentLocalActivityExecutions: local,
      maxConcurrentActivityTaskExecutions: changes,
    }),
    Worker.create({
      ...common,
      taskQueue: queues.expiries,
      activities: { expire: (holdId: string) => activities.expire(holdId) },
      maxConcurrentActivityTaskExecutions: expiries,
    }),
    Worker.create({
      ...common,
      ...workflows,
      taskQueue: queues.effects,
      maxCachedWorkflows: 50,
      maxConcurrentWorkflowTaskExecutions: 10,
      maxConcurrentActivityTaskExecutions: effects,
    }),
  ]);
  const stop = () => {
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
  };
  let running: Promise<void> | undefined;
  return {
    stop,
    run() {
      running ??= Promise.all(
        // One of them alone would look alive and do a part of the work.
        workers.map((worker) => worker.run().finally(stop)),
      ).then(() => undefined);
      return running;
    },
  };
}
