import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { root } from '../../cli/root.js';

/** One line of `npm start -- --json`. */
export interface Step {
  step: string;
  ok: boolean;
  seconds: number;
  text: string;
  checked?: Record<string, unknown>;
}

export interface Launcher {
  process: ChildProcess;
  steps: Step[];
  /** Lines on stdout that are no steps: there must be none. */
  noise: string[];
  /** Fulfilled with the first step of that name; rejected when the launcher ends without it. */
  step(name: string): Promise<Step>;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** The launcher, told to speak JSON; with temporary data and free ports unless the environment names data. */
export function startLauncher(
  flags: string[],
  env: NodeJS.ProcessEnv = {},
  [command, ...args]: [string, ...string[]] = [process.execPath, join(root, 'cli', 'start.mjs')],
  account: { uid?: number; gid?: number } = {},
): Launcher {
  const fresh = env['TAHAN_DATA'] === undefined ? ['--fresh'] : [];
  const child = spawn(command, [...args, '--json', ...fresh, ...flags], {
    ...account,
    cwd: root,
    env: { ...process.env, DATABASE_URL: '', TEMPORAL_ADDRESS: '', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const steps: Step[] = [];
  const noise: string[] = [];
  const waiting: { name: string; resolve: (step: Step) => void; reject: (error: Error) => void }[] =
    [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (!line.startsWith('{')) return void noise.push(line);
    const step = JSON.parse(line) as Step;
    steps.push(step);
    for (const { name, resolve } of waiting) if (name === step.step) resolve(step);
  });
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once('close', (code, signal) => {
      resolve({ code, signal });
      const said = steps.map(({ step, ok, text }) => `${ok ? '' : 'FAILED '}${step}: ${text}`);
      for (const { name, reject } of waiting)
        reject(new Error(`the launcher ended without "${name}":\n${said.join('\n')}`));
    });
  });
  return {
    process: child,
    steps,
    noise,
    ended,
    step: (name) => {
      const seen = steps.find((one) => one.step === name);
      return seen
        ? Promise.resolve(seen)
        : new Promise((resolve, reject) => waiting.push({ name, resolve, reject }));
    },
  };
}
