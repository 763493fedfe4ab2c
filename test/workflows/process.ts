import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { inject } from 'vitest';
import { root } from '../../cli/root.js';
import { until } from './engine.js';

export type Role = 'api' | 'worker';

/** `node dist/ROLE/main.js` as a deployment starts it, ended with this test at the latest. */
export interface OwnProcess {
  child: ChildProcess;
  /** What it printed, by lines. */
  lines: string[];
  /** Of these its last words, on stderr. */
  errors: string[];
  exit: Promise<number | string | null>;
  /** Its ready line. */
  ready(): Promise<Record<string, unknown>>;
}

/** `env` names the database and the task queues; the run's Temporal and bundle are there already. */
export function spawnProcess(role: Role, env: Record<string, string>): OwnProcess {
  const child = spawn(process.execPath, [join(root, 'dist', role, 'main.js')], {
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      TEMPORAL_ADDRESS: inject('temporalAddress'),
      TAHAN_WORKFLOW_BUNDLE: inject('bundlePath'),
      TAHAN_EXIT_WITH_PARENT: '1',
      PORT: '0',
      ...env,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const lines: string[] = [];
  const errors: string[] = [];
  createInterface(child.stdout).on('line', (line) => lines.push(line));
  createInterface(child.stderr).on('line', (line) => {
    lines.push(line);
    errors.push(line);
  });
  const exit = new Promise<number | string | null>((resolve) =>
    child.once('exit', (code, signal) => resolve(signal ?? code)),
  );
  const readyLine = () => lines.find((line) => line.includes('"ready":true'));
  return {
    child,
    lines,
    errors,
    exit,
    async ready() {
      const over = () => child.exitCode !== null || child.signalCode !== null;
      await until(`the ${role} is ready`, () => over() || readyLine() !== undefined, 60_000);
      if (readyLine() === undefined) throw new Error(`the ${role} ended:\n${lines.join('\n')}`);
      return JSON.parse(readyLine()!) as Record<string, unknown>;
    },
  };
}

/** The same, once it is ready, with its address if it is an API. */
export async function startProcess(
  role: Role,
  env: Record<string, string>,
): Promise<OwnProcess & { url: string }> {
  const started = spawnProcess(role, env);
  const { url = '' } = (await started.ready()) as { url?: string };
  return { ...started, url };
}

/** Kills it, whatever it does, and waits for its end. */
export async function killProcess({ child, exit }: OwnProcess): Promise<void> {
  child.kill('SIGCONT');
  child.kill('SIGKILL');
  await exit;
}
