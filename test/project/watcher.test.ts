import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { root } from '../../cli/root.js';
import { until } from '../../cli/servers/until.js';
import { startWatched, whenReady } from '../../cli/servers/watch.js';

/** Stands for a server: says on its log that it runs, and how it was asked to end. */
const server = (onTerm: string) =>
  `process.on('SIGTERM', () => { ${onTerm} }); console.log('running'); setInterval(() => {}, 1000);`;

describe('every native child has a watcher', () => {
  let folder: string;
  let logFile: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tahan-watcher-'));
    logFile = join(folder, 'child.log');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const job = (script: string) => ({
    command: process.execPath,
    args: ['-e', script],
    env: { PATH: process.env['PATH'] },
    logFile,
  });
  const logged = (text: string) => () =>
    Promise.resolve(existsSync(logFile) && readFileSync(logFile, 'utf8').includes(text));

  it('kill -9 of the launcher ends the child, and temporary data goes with it', async () => {
    const data = join(folder, 'data');
    mkdirSync(data);
    writeFileSync(join(data, 'file'), 'x');
    const watch = pathToFileURL(join(root, 'dist', 'cli', 'servers', 'watch.js')).href;
    const script = `import { startWatched } from ${JSON.stringify(watch)};
      const child = await startWatched(${JSON.stringify({
        ...job(server(`console.log('asked to end'); process.exit(0)`)),
        remove: [data],
      })});
      console.log(child.pid);`;
    const launcher = spawn(process.execPath, ['--input-type=module', '-e', script]);
    const [line] = (await once(createInterface({ input: launcher.stdout }), 'line')) as [string];
    const pid = Number(line);
    expect(await until(logged('running'), 10_000)).toBe(true);
    expect(isAlive(pid)).toBe(true);

    launcher.kill('SIGKILL');

    expect(await until(() => !isAlive(pid), 10_000)).toBe(true);
    expect(readFileSync(logFile, 'utf8')).toContain('asked to end');
    expect(await until(() => !existsSync(data), 10_000)).toBe(true);
  });

  it('a child that does not listen is killed after its grace', async () => {
    const child = await startWatched({ ...job(server('')), graceMs: 300 });
    await whenReady('The child', child, logged('running'), 10_000);
    expect(await child.stop()).toEqual({ code: null, signal: 'SIGKILL' });
    expect(isAlive(child.pid)).toBe(false);
  });

  it('a child is asked to end with the signal that it wants', async () => {
    const script = `process.on('SIGINT', () => process.exit(7)); console.log('running'); setInterval(() => {}, 1000)`;
    const child = await startWatched({ ...job(script), signal: 'SIGINT' });
    await whenReady('The child', child, logged('running'), 10_000);
    expect(await child.stop()).toEqual({ code: 7, signal: null });
  });

  it('a child that ends by itself is noticed, with its exit code', async () => {
    const child = await startWatched(job('process.exit(3)'));
    expect(await child.ended).toEqual({ code: 3, signal: null });
    expect(await child.stop()).toEqual({ code: 3, signal: null });
  });

  it('a child that is killed is noticed', async () => {
    const child = await startWatched(job(server('')));
    process.kill(child.pid, 'SIGKILL');
    expect(await child.ended).toEqual({ code: null, signal: 'SIGKILL' });
  });

  it('a program that is not there is an error that names it', async () => {
    await expect(startWatched({ ...job(''), command: '/no/such/program' })).rejects.toThrow(
      "/no/such/program can't be started",
    );
  });

  it('a child that ends before it is ready is an error with the end of its log', async () => {
    const child = await startWatched(job(`console.log('port is taken'); process.exit(1)`));
    await expect(
      whenReady('The child', child, () => Promise.resolve(false), 10_000),
    ).rejects.toThrow(/The child ended.*port is taken/s);
  });

  it('what the job holds does not stand on a command line', async () => {
    const child = await startWatched({
      ...job(server('process.exit(0)')),
      env: { PATH: process.env['PATH'], SECRET: 'do-not-show-me' },
    });
    await whenReady('The child', child, logged('running'), 10_000);
    const watcher = Number(
      /^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))![1],
    );
    for (const pid of [watcher, child.pid]) {
      expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain('do-not-show-me');
    }
    await child.stop();
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
