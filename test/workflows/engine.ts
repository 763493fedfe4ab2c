import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import type { WorkflowBundleOption } from '@temporalio/worker';
import { expect, inject } from 'vitest';
import type { Activities } from '../../activities/index.js';
import { connect, state, workflowId } from '../../workflows/contract.js';
import type { HoldState, Holds, Temporal } from '../../workflows/contract.js';
import { createWorkers } from '../../worker/worker.js';

/** Failed workflow tasks are told here, and every one of them is a defect; not what our code logs. */
const problems: string[] = [];
/** That expiries have a worker of their own, what our own code logs, what the fakes throw, the one failure that a hold may end with, and a try whose beat a busy machine held back: another one finds what it did. */
const expected =
  /^(No workflows registered|\w+: CancelledFailure: NOT_FOUND during attempt|Activity failed|Workflow failed nothing was taken|a payment stays pending|.*payment signal: dropped|more than 100 payments|the hold has no row|a payment to settle is unknown)/;
let installed = false;
/** The test file that they are of: a process runs many, one after the other. */
let collectedIn: string | undefined;

export interface Engine {
  holds: Holds;
  temporal: Temporal;
  /** Starts the workers, or starts them again after `stop`. */
  start(): Promise<void>;
  stop(): Promise<void>;
  close(): Promise<void>;
  /** What the SDK complained about: failed workflow tasks, unhandled errors. */
  problems: string[];
}

export interface EngineOptions {
  namespace?: string;
  /** Of a Temporal server of the test's own. */
  address?: string;
  /** Other workflows than ours: see mutant.ts. */
  workflowBundle?: WorkflowBundleOption;
  /** Activities at once, for tests that stop many of them halfway. */
  tasks?: number;
  local?: number;
  changes?: number;
  expiries?: number;
  endsPerSecond?: number;
}

/** Before the first worker of a process or a file: problems are collected, the rest is not printed. */
export function quietRuntime(): void {
  const { testPath } = expect.getState();
  if (testPath !== collectedIn) problems.length = 0;
  collectedIn = testPath;
  if (installed) return;
  installed = true;
  const logger = new DefaultLogger('WARN', ({ message, meta }) => {
    const words = `${message} ${String((meta?.['error'] as Error | undefined)?.message ?? '')}`;
    if (!expected.test(words)) problems.push(words);
  });
  Runtime.install({
    logger,
    telemetryOptions: { logging: { filter: { core: 'ERROR', other: 'ERROR' }, forward: {} } },
    shutdownSignals: [],
  });
}

/** Workers on queues of their own, on the run's Temporal server. They are not started yet. */
export async function engine(
  activities: Activities,
  { namespace = 'default', address = inject('temporalAddress'), ...rest }: EngineOptions = {},
): Promise<Engine> {
  quietRuntime();
  const prefix = `t${randomUUID().slice(0, 8)}-`;
  const temporal = connect({ address, namespace });
  const connection = await NativeConnection.connect({ address });
  const holds: Holds = { client: temporal.client, prefix, indexed: true };
  let running: { stop(): void; done: Promise<void> } | undefined;
  return {
    holds,
    temporal,
    problems,
    async start() {
      const workers = await createWorkers({
        connection,
        namespace,
        prefix,
        activities,
        workflowBundle: { codePath: inject('bundlePath') },
        ...rest,
      });
      running = { stop: () => workers.stop(), done: workers.run() };
    },
    async stop() {
      running?.stop();
      await running?.done;
      running = undefined;
    },
    async close() {
      running?.stop();
      await running?.done;
      await connection.close();
      await temporal.close();
    },
  };
}

export function handleOf({ holds }: Engine, holdId: string) {
  return holds.client.workflow.getHandle(workflowId(holdId));
}

/** The workflow's result, or the failure's type. */
export async function endOf(engine: Engine, holdId: string): Promise<Record<string, unknown>> {
  return (await handleOf(engine, holdId).result()) as Record<string, unknown>;
}

export async function stateOf(engine: Engine, holdId: string): Promise<HoldState> {
  return handleOf(engine, holdId).query(state);
}

/** temporal.api.enums.v1.WorkflowTaskFailedCause: the completion met a signal, and was refused. */
const unhandledCommand = 1;

/** Workflow tasks of a hold that failed; completions that were refused are counted apart. */
export async function failedTasks(
  engine: Engine,
  holdId: string,
): Promise<{ refused: number; failed: string[] }> {
  const { events } = await handleOf(engine, holdId).fetchHistory();
  const found = events!.flatMap((event) => event.workflowTaskFailedEventAttributes ?? []);
  const isRefused = ({ cause }: { cause?: unknown }) => Number(cause) === unhandledCommand;
  return {
    refused: found.filter(isRefused).length,
    // What the worker reports has a failure. Without one it was the server: a flood of signals that fills
    // its buffer during a task makes it close the task by force and hand out another.
    failed: found
      .filter((one) => one.failure && !isRefused(one))
      .map((one) => String(one.failure!.message)),
  };
}

/** Waits for a fact; a test never sleeps instead. */
export async function until(
  what: string,
  fact: () => boolean | Promise<boolean>,
  withinMs = 10_000,
): Promise<void> {
  const endsAt = Date.now() + withinMs;
  while (!(await fact())) {
    if (Date.now() > endsAt) throw new Error(`not within ${withinMs} ms: ${what}`);
    await sleep(20);
  }
}
