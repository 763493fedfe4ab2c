import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { inject } from 'vitest';
import { root } from '../../cli/root.js';
import { until } from '../workflows/engine.js';

/** `node dist/...` as a deployment starts it; it ends with this test at the latest. */
export interface Running {
  child: ChildProcess;
  lines: string[];
  exit: Promise<number | string | null>;
}

/** Starts the API or a worker and waits for its ready line. */
export async function startProcess(
  file: 'api/main.js' | 'worker/main.js',
  env: Record<string, string>,
): Promise<Running & { url: string }> {
  const child = spawn(process.execPath, [join(root, 'dist', file)], {
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
  for (const stream of [child.stdout, child.stderr])
    createInterface(stream).on('line', (line) => lines.push(line));
  const exit = new Promise<number | string | null>((resolve) =>
    child.on('exit', (code, signal) => resolve(signal ?? code)),
  );
  const readyLine = () => lines.find((line) => line.includes('"ready":true'));
  await until(
    `${file} is ready`,
    () => {
      if (child.exitCode !== null) throw new Error(`${file} has ended: ${lines.join('\n')}`);
      return readyLine() !== undefined;
    },
    60_000,
  );
  const { url = '' } = JSON.parse(readyLine()!) as { url?: string };
  return { child, lines, exit, url };
}

/** Kills it, whatever it does, and waits for its end. */
export async function killProcess({ child, exit }: Running): Promise<void> {
  child.kill('SIGCONT');
  child.kill('SIGKILL');
  await exit;
}
