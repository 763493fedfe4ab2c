import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Loaded, Order, Plan, Report } from './plan.js';

/** The generator's process, as the bench speaks to it. */
export interface Generator {
  pid: number;
  run(plan: Plan): Promise<Loaded>;
  /** The same, until `stop` is called: it begins no more visits, and ends with those that run. */
  start(plan: Plan): { ended: Promise<Loaded>; stop(): void };
  close(): Promise<void>;
}

export function startGenerator(): Generator {
  const child = fork(new URL('main.ts', import.meta.url), { execArgv: ['--import', 'tsx'] });
  let last = 0;
  const start: Generator['start'] = (plan) => {
    const id = (last += 1);
    const ended = answerTo(child, id);
    child.send({ id, plan } satisfies Order);
    return { ended, stop: () => void child.send({ id, stop: true } satisfies Order) };
  };
  return {
    pid: child.pid!,
    start,
    run: (plan) => start(plan).ended,
    async close() {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
  };
}

function answerTo(child: ChildProcess, id: number): Promise<Loaded> {
  return new Promise((resolve, reject) => {
    const onMessage = (report: Report) => {
      if (report.id !== id) return;
      child.off('message', onMessage).off('exit', onExit);
      if ('error' in report) reject(new Error(`the generator failed: ${report.error}`));
      else resolve(report.loaded);
    };
    const onExit = () => reject(new Error('the generator ended by itself'));
    child.on('message', onMessage).once('exit', onExit);
  });
}
