import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { root } from '../root.js';
import { until } from './until.js';

export interface Job {
  command: string;
  args: string[];
  env: Record<string, string | undefined>;
  /** Where the child's output goes; the launcher's terminal stays readable. */
  logFile: string;
  cwd?: string;
  /** The account that the child runs as; the launcher's own if missing. */
  account?: { uid: number; gid: number } | undefined;
  /** How the child is asked to end. Postgres wants SIGINT: its fast shutdown. */
  signal?: NodeJS.Signals;
  graceMs?: number;
  /** Temporary folders that go with the child, even when the launcher was killed. */
  remove?: string[];
  /** A lock file (cli/lock.mjs) that the watcher holds as long as it lives. */
  lock?: string | undefined;
}

export interface Ending {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A running child with its watcher (cli/watcher.mjs), which ends it when this process is gone. */
export interface Watched {
  pid: number;
  logFile: string;
  ended: Promise<Ending>;
  /** Ends the child in order and waits for it; safe to call twice. */
  stop(): Promise<Ending>;
}

/** Starts a child under a watcher. The promise is fulfilled when the child has a pid, not when it is ready. */
export async function startWatched(job: Job): Promise<Watched> {
  mkdirSync(dirname(job.logFile), { recursive: true });
  const log = openSync(job.logFile, 'a');
  // A session of its own: Ctrl-C in the terminal reaches the launcher alone, which stops all in order.
  const watcher = spawn(process.execPath, [join(root, 'cli', 'watcher.mjs')], {
    cwd: '/',
    detached: true,
    env: withoutNodeOptions(process.env),
    stdio: ['pipe', log, log, 'pipe'],
  });
  closeSync(log);
  const lifeline = watcher.stdin!;
  lifeline.on('error', () => undefined); // the watcher ended first: `ended` says so
  lifeline.write(`${JSON.stringify(watcherJob(job))}\n`);
  const { pid, ended } = await firstReport(watcher, job);
  return {
    pid,
    logFile: job.logFile,
    ended,
    stop() {
      lifeline.end();
      return ended;
    },
  };
}

/** Waits until the fact about a starting child holds; what stands in its log says why it does not. */
export async function whenReady(
  name: string,
  child: Watched,
  fact: () => Promise<boolean>,
  withinMs = 60_000,
): Promise<void> {
  let ended = false;
  void child.ended.then(() => (ended = true));
  const ready = await until(async () => ended || (await fact()), withinMs);
  if (ready && !ended) return;
  await child.stop();
  const log = readFileSync(child.logFile, 'utf8').trimEnd().split('\n').slice(-12).join('\n');
  throw new Error(
    `${name} ${ended ? 'ended' : 'did not get ready'}; the end of ${child.logFile}:\n${log}`,
  );
}

function watcherJob(job: Job): object {
  return {
    command: job.command,
    args: job.args,
    cwd: job.cwd ?? '/',
    env: job.env,
    ...job.account,
    signal: job.signal ?? 'SIGTERM',
    graceMs: job.graceMs ?? 10_000,
    remove: job.remove ?? [],
    lock: job.lock,
  };
}

function firstReport(
  watcher: ChildProcess,
  job: Job,
): Promise<{ pid: number; ended: Promise<Ending> }> {
  return new Promise((resolve, reject) => {
    let ending: Ending | undefined;
    const ended = new Promise<Ending>((done) => {
      watcher.on('close', (code, signal) => {
        done(ending ?? { code, signal });
        reject(new Error(`The watcher of ${job.command} ended before it started anything.`));
      });
    });
    watcher.on('error', reject);
    createInterface({ input: watcher.stdio[3] as Readable }).on('line', (line) => {
      const report = JSON.parse(line) as { pid?: number; failed?: string } & Partial<Ending>;
      if (report.pid !== undefined) resolve({ pid: report.pid, ended });
      else if (report.failed !== undefined)
        reject(new Error(`${job.command} can't be started: ${report.failed}`));
      else ending = { code: report.code ?? null, signal: report.signal ?? null };
    });
  });
}

/** A loader or inspector meant for this process would slow or break the watcher. */
function withoutNodeOptions(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { NODE_OPTIONS: _options, ...rest } = env;
  return rest;
}
