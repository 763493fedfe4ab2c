import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { until } from '../../cli/servers/until.js';
import { emptyDatabase, type TestDatabase } from '../setup/database.js';
import { length } from '../setup/length.js';
import { startLauncher, type Launcher } from './launcher.js';
import { processesOf } from './natives.js';

const shown = [
  'a product to try',
  'two buyers, one item',
  'nobody pays',
  'paid too late',
  '200 buyers, 20 items',
  'kill -9 the worker',
];

describe('npm start', { timeout: 240_000 }, () => {
  let launcher: Launcher | undefined;
  let database: TestDatabase | undefined;

  afterEach(async () => {
    launcher?.process.kill('SIGKILL');
    await launcher?.ended;
    await database?.drop();
    database = undefined;
  });

  /** What a running launcher has started, out of its own words. */
  const started = () => startedBy(launcher!);

  async function nothingLeft({ pids, ports, home, folder }: Awaited<ReturnType<typeof started>>) {
    const alive = () => pids.filter(isAlive);
    await until(() => alive().length === 0, 20_000);
    expect(alive()).toEqual([]);
    const open = async () => {
      const answers = await Promise.all(ports.map(listens));
      return ports.filter((_, index) => answers[index]);
    };
    await until(async () => (await open()).length === 0, 20_000);
    expect(await open()).toEqual([]);
    expect(await until(() => !existsSync(home), 10_000)).toBe(true);
    expect(await until(() => processesOf(folder).length === 0, 20_000)).toBe(true);
  }

  it('--once --fresh --json shows everything, ends with 0 and leaves nothing', async () => {
    launcher = startLauncher(['--once']);
    const { code } = await launcher.ended;
    const failed = launcher.steps.filter(({ ok }) => !ok);
    expect(failed).toEqual([]);
    expect(code).toBe(0);
    expect(launcher.noise).toEqual([]);
    const parts = launcher.steps.filter(({ step }) => shown.includes(step));
    expect(parts.map(({ step }) => step).sort()).toEqual([...shown].sort());
    const rush = parts.find(({ step }) => step === '200 buyers, 20 items')!.checked!;
    expect(rush).toMatchObject({
      held: 20,
      different_holds: 20,
      refused: 180,
      units_available: 0,
      units_held: 20,
      reserved_in_the_ledger: 20,
      of_those_held: 20,
    });
    const late = parts.find(({ step }) => step === 'paid too late')!.checked;
    expect(late).toMatchObject({
      hold: 'EXPIRED',
      settlement: 'REFUNDED',
      reason: 'LATE',
      refunds_at_the_provider: 1,
      sent_back: 2500,
      units_available: 1,
      units_sold: 0,
    });
    expect(launcher.steps.at(-1)).toMatchObject({ step: 'stop', checked: { stopped: 5, left: 0 } });
    await nothingLeft(await started());
  });

  it('runs on a given Postgres (the oldest here) and a given Temporal, and drops what it made', async () => {
    const oldest = Math.min(...inject('postgres').map(({ version }) => version));
    database = await emptyDatabase(oldest);
    // The demonstration is the same as above: its start and its end are what is asked for here.
    launcher = startLauncher(length(0, 1) ? ['--once'] : ['--once', '--no-demo'], {
      DATABASE_URL: database.url,
      TEMPORAL_ADDRESS: inject('temporalAddress'),
    });
    const { code } = await launcher.ended;
    expect(launcher.steps.filter(({ ok }) => !ok)).toEqual([]);
    expect(code).toBe(0);
    const texts = launcher.steps.map(({ text }) => text).join('\n');
    expect(texts).toContain('given by DATABASE_URL');
    expect(texts).toContain('given by TEMPORAL_ADDRESS');
    expect(launcher.steps.at(-1)).toMatchObject({ step: 'stop', checked: { stopped: 3, left: 0 } });
    const temporary = launcher.steps.find(({ step }) => step === 'postgres')!.checked!['name'];
    const url = new URL(database.url);
    url.pathname = `/${String(temporary)}`;
    const { serverAnswers } = await import('../../db/server.js');
    expect(await serverAnswers(database.url)).toBe(true);
    expect(await serverAnswers(url.href)).toBe(false);
  });

  it('kill -9 of the launcher, or of npm above it, leaves nothing behind; Ctrl-C stops everything and ends with 0', async () => {
    const npm: [string, ...string[]] = ['npm', 'run', '--silent', 'start', '--'];
    const ways = [
      ['SIGKILL', undefined],
      ['SIGKILL', npm],
      ['SIGINT', undefined],
    ] as const;
    // Side by side: a start takes its time.
    await Promise.all(
      ways.map(async ([signal, command]) => {
        const own = startLauncher(['--no-demo'], {}, command);
        try {
          await own.step('running');
          const running = await startedBy(own);
          expect(running.pids.filter(isAlive)).toHaveLength(3);
          const listening = await Promise.all(running.ports.map(listens));
          expect(listening).toEqual([true, true, true, true, true]);
          own.process.kill(signal);
          if (signal === 'SIGINT') {
            expect(await own.ended).toEqual({ code: 0, signal: null });
            const checked = { stopped: 5, left: 0 };
            expect(own.steps.at(-1)).toMatchObject({ step: 'stop', checked });
          }
          await nothingLeft(running);
        } finally {
          own.process.kill('SIGKILL');
          await own.ended;
        }
      }),
    );
  });

  it('after a kill -9 the next start takes over lock, data and keys; a third is refused meanwhile', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tahan-kept-'));
    chmodSync(folder, 0o711);
    const kept = () => startLauncher(['--no-demo'], { TAHAN_DATA: folder });
    try {
      launcher = kept();
      await launcher.step('running');
      const { home } = await started();
      const secrets = readFileSync(join(folder, 'secrets.json'), 'utf8');
      // Held still, the API's watcher stands for a server that takes its time to end.
      const slow = parentOf(Number((await launcher.step('api')).checked!['pid']));
      process.kill(slow, 'SIGSTOP');
      launcher.process.kill('SIGKILL');

      const second = (launcher = kept());
      const said = (words: string) => second.steps.some(({ text }) => text.includes(words));
      expect(await until(() => said('waiting for the last run to end (api.lock'), 30_000)).toBe(
        true,
      );
      expect(said('took over its lock file')).toBe(true);
      expect(said('data in')).toBe(false);
      process.kill(slow, 'SIGCONT');
      await launcher.step('running');
      const changed = launcher.steps.find(({ step }) => step === 'database')!.checked;
      expect(changed).toEqual({ applied: [], functions: false });
      expect((await started()).home).toBe(home);
      expect(readFileSync(join(folder, 'secrets.json'), 'utf8')).toBe(secrets);

      const third = kept();
      expect((await third.ended).code).toBe(1);
      expect(third.steps.at(-1)!.text).toContain(`as process ${launcher.process.pid}`);
      const running = await started();
      launcher.process.kill('SIGTERM');
      expect(await launcher.ended).toEqual({ code: 0, signal: null });
      expect(running.pids.filter(isAlive)).toEqual([]);
    } finally {
      launcher?.process.kill('SIGKILL');
      await launcher?.ended;
      rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 500 });
    }
  });

  it('kill -9 of any of its processes: the launcher names it, stops the rest, ends with 1 and leaves nothing', async () => {
    // Side by side: a start takes its time.
    await Promise.all(
      (['api', 'worker', 'postgres', 'temporal'] as const).map(async (role) => {
        const own = startLauncher(['--no-demo']);
        try {
          await own.step('running');
          const running = await startedBy(own);
          process.kill(pidOf(role, own, running.folder), 'SIGKILL');
          expect((await own.ended).code).toBe(1);
          const failed = own.steps.filter(({ ok }) => !ok);
          expect(failed.map(({ text }) => text)).toEqual([
            expect.stringMatching(new RegExp(`The ${role} ended by itself \\((SIGKILL|code 1)\\)`)),
          ]);
          await nothingLeft(running);
        } finally {
          own.process.kill('SIGKILL');
          await own.ended;
        }
      }),
    );
  });

  it('an option that does not exist is refused before anything is started', async () => {
    launcher = startLauncher(['--onse']);
    expect(await launcher.ended).toEqual({ code: 2, signal: null });
  });
});

async function startedBy(launcher: Launcher) {
  const { steps } = launcher;
  const { checked: postgres } = steps.find(({ checked }) => checked?.['home']) ?? {};
  const temporal = steps.find(({ checked }) => checked?.['ui'])?.checked;
  const pids = steps.flatMap(({ checked }) => (checked?.['pid'] as number) ?? []);
  const ports = [
    Number(postgres!['port']),
    Number(String(temporal!['address']).split(':')[1]),
    Number(new URL(String(temporal!['ui'])).port),
    Number(new URL(String((await launcher.step('api')).checked!['url'])).port),
    Number(new URL(String((await launcher.step('sandbox')).checked!['url'])).port),
  ];
  const home = String(postgres!['home']);
  return { pids, ports, home, folder: dirname(home) };
}

/** API and worker say their own; the servers name the run's folder on their command lines. */
function pidOf(role: string, { steps }: Launcher, folder: string): number {
  const said = steps.find(({ step, checked }) => step === role && checked?.['pid'])?.checked;
  if (said !== undefined) return Number(said['pid']);
  const named = role === 'postgres' ? '/postgres\0-D' : 'server\0start-dev';
  const { pid } = processesOf(folder).find(({ pid }) =>
    readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(named),
  )!;
  return pid;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
}
