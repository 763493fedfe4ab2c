import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { root } from '../../cli/root.js';
import { usualPorts } from '../../cli/servers/ports.js';
import { until } from '../../cli/servers/until.js';
import { startLauncher, type Launcher } from './launcher.js';
import { processesOf } from './natives.js';

/** What a clone has after its first start; the packages are shared. */
const kept = ['activities', 'api', 'cli', 'db', 'dist', 'worker', 'workflows'];
const nobody = { uid: 65_534, gid: 65_534 };

/**
 * Only root can become another user. Whoever starts here has no network, no Python, nothing but node
 * on the PATH, and finds the usual ports taken.
 */
describe.runIf(process.getuid?.() === 0)('npm start anywhere', { timeout: 240_000 }, () => {
  const folders: string[] = [];
  const takers: Server[] = [];
  let places: string[];
  let running: { asUser: Launcher; asRoot: Launcher };

  beforeAll(async () => {
    for (const port of Object.values(usualPorts)) takers.push(await take(port));
    const [own, closed] = (places = [clone(), clone()]) as [string, string];
    giveTo(own, nobody);
    // Root's clone lies where the postgres user can't enter.
    chmodSync(dirname(closed), 0o700);
    // Side by side: a start takes its time.
    running = {
      asUser: start(own, [], nobody),
      asRoot: start(closed, ['id', 'sh']),
    };
  });
  afterAll(async () => {
    for (const launcher of Object.values(running)) {
      launcher.process.kill('SIGKILL');
      await launcher.ended;
    }
    for (const taker of takers) taker.close();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 50 });
  });

  function clone(): string {
    const parent = mkdtempSync(join(tmpdir(), 'tahan-anywhere-'));
    folders.push(parent);
    chmodSync(parent, 0o755);
    const folder = join(parent, 'tahan');
    mkdirSync(folder);
    const files = readdirSync(root).filter((name) => /^(package.*|tsconfig.*)\.json$/.test(name));
    // With times to the nanosecond: by them a build knows that it is up to date.
    spawnSync('cp', ['-a', ...[...kept, ...files].map((name) => join(root, name)), folder]);
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
    mkdirSync(join(folder, '.tahan'));
    // Each ends the network's part: the bundle, and Temporal's server from an earlier start.
    for (const name of ['cache', 'temporal']) {
      if (!existsSync(join(root, '.tahan', name))) continue;
      mkdirSync(join(folder, '.tahan', name));
      for (const entry of readdirSync(join(root, '.tahan', name)))
        if (!/\.db/.test(entry))
          symlinkSync(join(root, '.tahan', name, entry), join(folder, '.tahan', name, entry));
    }
    return folder;
  }

  function start(folder: string, tools: string[], account?: typeof nobody): Launcher {
    const bin = join(dirname(folder), 'bin');
    mkdirSync(bin);
    symlinkSync(process.execPath, join(bin, 'node'));
    symlinkTools(bin, tools);
    const nowhere = 'http://127.0.0.1:9';
    return startLauncher(
      ['--no-demo'],
      {
        PATH: bin,
        HOME: folder,
        TAHAN_DATA: join(folder, '.tahan'),
        TAHAN_TEMPORAL_CLI: '',
        HTTP_PROXY: nowhere,
        HTTPS_PROXY: nowhere,
        npm_config_offline: 'true',
        PIP_INDEX_URL: nowhere,
      },
      [process.execPath, join(folder, 'cli', 'start.mjs')],
      account,
    );
  }

  async function works(
    launcher: Launcher,
    folder: string,
  ): Promise<{ texts: string; home: string }> {
    await launcher.step('running').catch((error: unknown) => {
      throw new Error(`${String(error)}\n${logs(folder)}`);
    });
    const url = String((await launcher.step('api')).checked!['url']);
    expect(url).not.toContain(`:${usualPorts.api}`);
    expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({ status: 'ready' });
    const texts = launcher.steps.map(({ text }) => text).join('\n');
    for (const [name, port] of Object.entries(usualPorts))
      expect(texts).toContain(`${name} ${port} is taken, using`);
    expect(texts).toContain('from the last start');
    const { home } = launcher.steps.find(({ checked }) => checked?.['home'])!.checked!;
    return { texts, home: String(home) };
  }

  async function ends(launcher: Launcher, home: string): Promise<void> {
    launcher.process.kill('SIGTERM');
    expect(await launcher.ended).toEqual({ code: 0, signal: null });
    expect(await until(() => processesOf(home).length === 0, 10_000)).toBe(true);
  }

  it('as an ordinary user, with a full cache and without network, Python or free ports: it runs, and Postgres is the user’s own process', async () => {
    const { home } = await works(running.asUser, places[0]!);
    const natives = processesOf(home);
    expect(natives.length).toBeGreaterThan(0);
    expect(new Set(natives.map(({ uid }) => uid))).toEqual(new Set([nobody.uid]));
    await ends(running.asUser, home);
  });

  it('as root in a folder that the postgres user can not enter: the data is kept where it can, and that is said', async () => {
    const { texts, home } = await works(running.asRoot, places[1]!);
    expect(texts).toMatch(/the user "postgres" can't enter this folder: Postgres data is in \/var/);
    folders.push(dirname(home));
    expect(processesOf(home).every(({ uid }) => uid !== 0 && uid !== nobody.uid)).toBe(true);
    await ends(running.asRoot, home);
  });
});

/** The last words of API and worker, for whoever reads a failure. */
function logs(folder: string): string {
  return ['api', 'worker']
    .map((role) => join(folder, '.tahan', 'logs', `${role}.log`))
    .filter(existsSync)
    .map((file) => readFileSync(file, 'utf8').slice(-1000))
    .join('\n');
}

function symlinkTools(bin: string, names: string[]): void {
  for (const name of names) {
    const found = ['/usr/bin', '/bin', '/usr/sbin', '/sbin']
      .map((folder) => join(folder, name))
      .find(existsSync);
    if (found !== undefined) symlinkSync(found, join(bin, name));
  }
}

function giveTo(folder: string, { uid, gid }: typeof nobody): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) giveTo(path, { uid, gid });
    else lchownSync(path, uid, gid);
  }
  chownSync(folder, uid, gid);
}

/** Listens, unless somebody else does: the port is taken in either case. */
function take(port: number): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(server));
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
