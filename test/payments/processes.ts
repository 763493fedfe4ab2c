import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { root } from '../../cli/root.js';

const mayStartForMs = 120_000;

/** A process of dist/ that is killed with -9 and started again, as often as a test wants. */
export class Mortal {
  readonly #file: string;
  readonly #env: NodeJS.ProcessEnv;
  #child: ChildProcess | undefined;
  #lastLines: string[] = [];
  kills = 0;

  constructor(file: string, env: NodeJS.ProcessEnv) {
    this.#file = file;
    this.#env = env;
  }

  /** Resolves when it says that it is ready. */
  async start(): Promise<void> {
    const child = spawn(process.execPath, [join(root, 'dist', this.#file)], {
      env: {
        PATH: process.env['PATH'],
        HOME: process.env['HOME'],
        TAHAN_EXIT_WITH_PARENT: '1',
        ...this.#env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#child = child;
    let ready = false;
    for (const stream of [child.stdout, child.stderr])
      createInterface(stream).on('line', (line) => {
        ready ||= line.includes('"ready":true');
        this.#lastLines = [...this.#lastLines.slice(-9), line];
      });
    const end = performance.now() + mayStartForMs;
    while (!ready) {
      if (child.exitCode !== null || child.signalCode !== null || performance.now() > end)
        throw new Error(`${this.#file} did not start:\n${this.#lastLines.join('\n')}`);
      await sleep(20);
    }
  }

  /** kill -9 in the middle of whatever it does, and another one in its place. */
  async killAndStart(): Promise<void> {
    await this.kill();
    this.kills += 1;
    await this.start();
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }
}
