import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  existsSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { serverAnswers } from '../../db/server.js';
import { ownedFolder, stateFolder, type Account, type Say } from './account.js';
import { majorOf, type PostgresBinaries } from './postgresBinaries.js';
import { until } from './until.js';
import { startWatched, whenReady, type Watched } from './watch.js';

export interface PostgresOptions {
  binaries: PostgresBinaries;
  account: Account | undefined;
  /** Holds the data, the password and the log. Created when missing. */
  home: string;
  port: number;
  /** Off for tests and temporary data: nothing survives a power cut, and commits are not waited for. */
  durable: boolean;
  /** The whole home goes with the server, also after kill -9 of the launcher. */
  temporary?: boolean;
  /** Another folder that then goes too. */
  remove?: string;
  /** Held by the watcher as long as it lives. */
  lock?: string | undefined;
  say: Say;
}

export interface Postgres extends Watched {
  version: string;
  major: number;
  home: string;
  /** The owner's address of a database of this server. */
  url: (database: string) => string;
}

/** Starts Postgres on 127.0.0.1 and waits until it answers. */
export async function startPostgres(options: PostgresOptions): Promise<Postgres> {
  const { binaries, account, port, say } = options;
  const home = reachableHome(options);
  const data = join(home, 'data');
  const password = passwordIn(home, account);
  if (!existsSync(join(data, 'PG_VERSION'))) initialise(options, home, data);
  else if (majorOf(data) !== binaries.major) {
    throw new Error(
      `The data in ${data} is of Postgres ${majorOf(data)}, this is ${binaries.version}: ` +
        'move that folder away, or set DATABASE_URL to a server of its version.',
    );
  }
  await endForerunner(data, say);
  const server = await startWatched({
    command: join(binaries.folder, 'postgres'),
    args: ['-D', data, ...settings(options)],
    env: environment(),
    account,
    signal: 'SIGINT', // fast shutdown: open transactions are rolled back, none is waited for
    logFile: join(home, 'postgres.log'),
    lock: options.lock,
    remove: options.temporary ? [home, ...(options.remove ? [options.remove] : [])] : [],
  });
  const url = (database: string) =>
    `postgres://postgres:${password}@127.0.0.1:${port}/${encodeURIComponent(database)}`;
  // A minute at most: after a kill -9 it replays its log first.
  await whenReady('Postgres', server, () => serverAnswers(url('postgres')));
  return { ...server, version: binaries.version, major: binaries.major, home, url };
}

function settings({ port, durable }: PostgresOptions): string[] {
  const values: Record<string, string | number> = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '', // the usual folder may not be writable, and nobody needs it
    max_connections: 200,
    idle_in_transaction_session_timeout: '10s',
    jit: 'off', // statements here take a millisecond: compiling one would cost more
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** The wanted home, or one under the system's state folder where the account can't enter that. */
function reachableHome({ home, account, say }: PostgresOptions): string {
  if (ownedFolder(home, account)) return home;
  if (readdirSync(home).length === 0) rmdirSync(home);
  const instead = join(stateFolder(), home.replace(/^.*\//, ''));
  if (!ownedFolder(instead, account)) {
    throw new Error(`The user "${account?.name}" can work neither in ${home} nor in ${instead}.`);
  }
  say(`the user "${account?.name}" can't enter this folder: Postgres data is in ${instead}`);
  return instead;
}

function passwordIn(home: string, account: Account | undefined): string {
  const file = join(home, 'password');
  if (!existsSync(file)) {
    writeFileSync(file, randomBytes(18).toString('base64url'), { mode: 0o600 });
    if (account) chownSync(file, account.uid, account.gid);
  }
  return readFileSync(file, 'utf8').trim();
}

function initialise(
  { binaries, account, durable, say }: PostgresOptions,
  home: string,
  data: string,
) {
  // Renamed when complete: a data folder is whole or not there.
  const unfinished = `${data}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  const args = ['-D', unfinished, '--username=postgres', `--pwfile=${join(home, 'password')}`];
  args.push('--auth=scram-sha-256', '--encoding=UTF8', '--locale=C');
  if (binaries.major >= 18) args.push('--no-data-checksums'); // 15 has none unless asked
  if (!durable) args.push('--no-sync');
  const { status, stderr } = spawnSync(join(binaries.folder, 'initdb'), args, {
    ...(account && { uid: account.uid, gid: account.gid }),
    cwd: '/',
    env: environment(),
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`Postgres could not make its data folder ${data}: ${stderr}`);
  renameSync(unfinished, data);
  say(`made the data folder ${data}`);
}

/** Nothing of the launcher's: PGHOST and the like would be taken as settings. */
function environment(): Record<string, string | undefined> {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' };
}

/**
 * A kill -9 leaves postmaster.pid behind. Postgres itself sees when that process is gone, but refuses
 * to start when the number now belongs to another process of its user. And a watcher may be ending
 * the last server right now. The file goes only when no process works in the data folder: it guards
 * the shared memory of backends that are still leaving.
 */
async function endForerunner(data: string, say: Say): Promise<void> {
  const file = join(data, 'postmaster.pid');
  if (!existsSync(file)) return;
  const gone = () => processesIn(data).length === 0;
  if (!gone()) {
    say('waiting for the last Postgres on this data to end');
    if (!(await until(gone, 15_000))) {
      for (const pid of processesIn(data)) process.kill(pid, 'SIGQUIT');
      if (!(await until(gone, 10_000))) {
        throw new Error(`Another Postgres (pid ${processesIn(data).join(', ')}) works in ${data}.`);
      }
    }
  }
  rmSync(file, { force: true });
}

/** Postgres makes its data folder the working folder of every one of its processes. */
function processesIn(data: string): number[] {
  if (!existsSync('/proc/self/cwd')) return fromPostmasterFile(data);
  const real = realpathSync(data);
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && workingFolder(pid) === real);
}

function workingFolder(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined; // gone meanwhile, or another user's, which Postgres does not mind
  }
}

/** Where there is no /proc: the process named in the file, if its command line names the folder. */
function fromPostmasterFile(data: string): number[] {
  const pid = parseInt(readFileSync(join(data, 'postmaster.pid'), 'utf8'), 10);
  const { stdout } = spawnSync('ps', ['-p', String(pid), '-o', 'command='], { encoding: 'utf8' });
  return stdout?.includes(data) ? [pid] : [];
}
