import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { demonstrate, playSku } from './demonstration.js';
import type { Report } from './report.mjs';
import { dataFolder } from './running.js';
import { System } from './system.js';

export interface LaunchOptions {
  /** Stop after the demonstration. */
  once: boolean;
  fresh: boolean;
  /** Where data is kept, unless it is fresh. */
  folder: string;
  demonstrate: boolean;
}

/**
 * Everything after installation: start, show, and wait until somebody says stop. Answers with the exit
 * code. Whatever happens, what was started is stopped.
 */
export async function launch(options: LaunchOptions, report: Report): Promise<number> {
  const stop = stopAsked();
  const system = new System(options, report);
  const ends = Promise.race([stop.asked, system.broken]);
  try {
    // When somebody says stop in the middle of a start, what it starts from then on ends at once.
    const interrupted = await Promise.race([system.start(), ends]);
    if (interrupted === undefined) await present(options, system, report, ends);
    else if (!stop.bySignal) report.fail('stopped', interrupted);
  } catch (error) {
    report.fail('start', error instanceof Error ? error.message : String(error));
  } finally {
    if (stop.bySignal) report.prose('\nstopping (once more: at once)');
    await finish(system, report);
  }
  return report.failures > 0 ? 1 : 0;
}

async function present(
  options: LaunchOptions,
  system: System,
  report: Report,
  ends: Promise<string>,
): Promise<void> {
  const abort = new AbortController();
  setMaxListeners(0, abort.signal); // each of 200 buyers listens: no leak
  let reason: string | undefined;
  const ended = ends.then((sentence) => {
    reason = sentence;
    abort.abort();
  });
  if (options.demonstrate) {
    report.prose('\nThe demonstration, against the running system');
    const { apiUrl, sandboxUrl, secrets } = system;
    await demonstrate({
      apiUrl,
      sandboxUrl,
      secrets,
      report,
      killWorker: () => system.killWorker(),
      startWorker: () => system.startWorker(),
      signal: abort.signal,
    });
  }
  if (options.once || reason !== undefined) return;
  report.step('running', `after ${report.seconds.toFixed(1)} s`, {
    api: system.apiUrl,
    sandbox: system.sandboxUrl,
    temporal_ui: system.temporalUi,
  });
  report.prose(await closingBox(system));
  await ended;
  if (reason !== signalReason) report.fail('stopped', reason ?? '');
}

async function finish(system: System, report: Report): Promise<void> {
  const { stopped, left } = await system.stop();
  const text = `stopped ${stopped} processes`;
  if (left === 0) report.step('stop', text, { stopped, left });
  else report.fail('stop', `${text}, ${left} are left`, { stopped, left });
}

/** What a person needs next: where things are, and one line to paste. */
async function closingBox({
  apiUrl,
  sandboxUrl,
  temporalUi,
  secrets,
  folder,
}: System): Promise<string> {
  const rows: [string, string][] = [['API', apiUrl]];
  for (const path of ['/docs', '/openapi.json']) {
    const there = await fetch(apiUrl + path).then(
      (answer) => answer.ok,
      () => false,
    );
    if (there) rows.push(['API description', apiUrl + path]);
  }
  rows.push(['payment sandbox', sandboxUrl]);
  if (temporalUi !== undefined) rows.push(['Temporal UI', temporalUi]);
  rows.push(['shop key', secrets.shopKey], ['operator key', secrets.operatorKey]);
  const lines = rows.map(([name, value]) => `${name.padEnd(16)} ${value}`);
  const width = Math.max(...lines.map((line) => line.length));
  const edge = '─'.repeat(width + 2);
  return [
    `┌${edge}┐`,
    ...lines.map((line) => `│ ${line.padEnd(width)} │`),
    `└${edge}┘`,
    'Hold a ticket:',
    `curl -s ${apiUrl}/v1/holds -H 'Authorization: Bearer ${secrets.shopKey}' -H 'Idempotency-Key: my-first' ` +
      `-H 'Content-Type: application/json' -d '{"buyer_id":"me","lines":[{"sku":"${playSku}","quantity":1}]}'`,
    'Pay for it, with the id that it answers (--help shows what may go wrong on the way):',
    `${dataOf(folder)}npm run pay -- <id>`,
    'Ctrl-C stops everything.',
  ].join('\n');
}

/** What another command must be told to find this run's data; nothing, where it looks by itself. */
function dataOf(folder: string): string {
  return folder === dataFolder({}) ? '' : `TAHAN_DATA='${folder}' `;
}

const signalReason = 'asked to stop';

/**
 * Ctrl-C, `kill`, a closed terminal, and an npm that was killed above us: all mean stop. The second
 * signal ends at once; the watchers then end the children.
 */
function stopAsked(): { asked: Promise<string>; bySignal: boolean } {
  const stop = { bySignal: false, asked: Promise.resolve('') };
  stop.asked = new Promise((resolve) => {
    const ask = () => {
      if (stop.bySignal) process.exit(130);
      stop.bySignal = true;
      resolve(signalReason);
    };
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, ask);
    if (process.env['npm_lifecycle_event'] === undefined) return;
    // npm runs us in a shell and hands its signals to that shell, which dies of them alone.
    const before = lineage();
    setInterval(() => {
      if (!stop.bySignal && lineage() !== before) ask();
    }, 1_000).unref();
  });
  return stop;
}

/** The shell above this process, and npm above the shell. */
function lineage(): string {
  const above = String(process.ppid);
  try {
    // Field 4; the name in field 2 may hold spaces and parentheses.
    const fields = readFileSync(`/proc/${above}/stat`, 'utf8').split(') ').at(-1)!.split(' ');
    return `${above} ${fields[1]}`;
  } catch {
    return above;
  }
}
