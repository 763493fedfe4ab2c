import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { inject } from 'vitest';
import { root } from '../../cli/root.js';
import { until } from './engine.js';

/** `node dist/worker/main.js` as a deployment starts it, ended with this test at the latest. */
export interface WorkerProcess {
  child: ChildProcess;
  lines: string[];
  /** Its last words on stderr. */
  errors: string[];
  exit: Promise<number | string | null>;
  ready(): Promise<void>;
}

/** `env` names the database and the task queues. */
export function spawnWorker(env: Record<string, string>): WorkerProcess {
  const child = spawn(process.execPath, [join(root, 'dist/worker/main.js')], {
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      TEMPORAL_ADDRESS: inject('temporalAddress'),
      TAHAN_WORKFLOW_BUNDLE: inject('bundlePath'),
      TAHAN_EXIT_WITH_PARENT: '1',
      ...env,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const lines: string[] = [];
  const errors: string[] = [];
  createInterface(child.stdout).on('line', (line) => lines.push(line));
  createInterface(child.stderr).on('line', (line) => errors.push(line));
  const exit = new Promise<number | string | null>((resolve) =>
    child.on('exit', (code, signal) => resolve(signal ?? code)),
  );
  return {
    child,
    lines,
    errors,
    exit,
    ready: () =>
      until('the worker is ready', () => lines.some((line) => /"ready":true/.test(line)), 60_000),
  };
}
