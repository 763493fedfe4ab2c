import { spawnSync } from 'node:child_process';
import { accessSync, chmodSync, chownSync, constants, mkdirSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { basename, dirname, join } from 'node:path';
import { root } from '../root.js';

/** Tells the person at the terminal what was found, installed or decided. */
export type Say = (step: string) => void;

export interface Account {
  name: string;
  uid: number;
  gid: number;
}

/**
 * The account that Postgres runs as: it refuses to run as root. Undefined means the launcher's own.
 * As root that is the user `postgres`, created where the system has none.
 */
export function postgresAccount(say: Say): Account | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const found = lookUp('postgres');
  if (found) return found;
  run('useradd', [
    '--system',
    '--user-group',
    '--no-create-home',
    '--shell',
    '/bin/sh',
    'postgres',
  ]);
  const created = lookUp('postgres');
  if (!created) {
    throw new Error(
      'Postgres refuses to run as root, and the user "postgres" could not be created. ' +
        'Create it, start as an ordinary user, or set DATABASE_URL to a Postgres of your own.',
    );
  }
  say('created the system user "postgres": Postgres refuses to run as root');
  return created;
}

/**
 * Where root keeps what the postgres user must reach when the clone is closed to it (a folder of mode
 * 700 above it). Keyed by the clone's path, so that two clones never share data.
 */
export function stateFolder(): string {
  const key = createHash('sha256').update(root).digest('hex').slice(0, 8);
  const folder = join('/var/lib/tahan', `${basename(root)}-${key}`);
  for (const each of [dirname(folder), folder]) openFolder(each);
  return folder;
}

/**
 * Makes a folder that the account owns, and tells whether the account can really work in it: tried,
 * not computed from modes.
 */
export function ownedFolder(folder: string, account: Account | undefined): boolean {
  mkdirSync(folder, { recursive: true });
  if (!account) {
    if (writable(folder)) return true;
    throw new Error(`${folder} belongs to another user: was tahan started as root before?`);
  }
  chownSync(folder, account.uid, account.gid);
  chmodSync(folder, 0o700);
  return runAs(account, '/bin/sh', ['-c', 'cd "$0" && test -w .', folder]);
}

function writable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Makes a folder that every account can enter, whatever the umask is. */
export function openFolder(folder: string): void {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o755);
}

/** Runs a short command as the account and tells whether it succeeded. */
export function runAs(account: Account | undefined, command: string, args: string[]): boolean {
  const identity = account && { uid: account.uid, gid: account.gid };
  return spawnSync(command, args, { ...identity, cwd: '/', stdio: 'ignore' }).status === 0;
}

function lookUp(name: string): Account | undefined {
  const [uid, gid] = ['-u', '-g'].map((what) => {
    const { status, stdout } = spawnSync('id', [what, name], { encoding: 'utf8' });
    return status === 0 ? Number(stdout) : NaN;
  });
  return Number.isInteger(uid) && Number.isInteger(gid)
    ? { name, uid: uid!, gid: gid! }
    : undefined;
}

function run(command: string, args: string[]): void {
  spawnSync(command, args, { stdio: 'ignore' });
}
