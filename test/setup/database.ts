import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, inject } from 'vitest';
import { root } from '../../cli/root.js';
import { migrate } from '../../db/migrate.js';
import { length } from './length.js';

export interface TestDatabase {
  /** The owner's address. */
  url: string;
  name: string;
  version: number;
  /** Drops the database, and whoever is still connected. */
  drop(): Promise<void>;
}

/** A server of a test's own; a number is the version of one of the run's. */
export type OnServer = number | { version: number; url: string };

/** Runs the suite once on each Postgres that is present: `R05 ... (Postgres 15)`. */
export function describeEachPostgres(name: string, suite: (version: number) => void): void {
  for (const { version } of inject('postgres')) {
    describe(`${name} (Postgres ${version})`, () => suite(version));
  }
}

/** What no version decides (a load, a client's manners): on the newest in `npm test`, on each at length. */
export function describeNewestPostgres(name: string, suite: (version: number) => void): void {
  for (const { version } of inject('postgres').filter((one) => isThorough(one.version))) {
    describe(`${name} (Postgres ${version})`, () => suite(version));
  }
}

/**
 * Whether what is proved on each Postgres is tried in full length on this one: in `npm test` only on
 * the newest.
 */
export function isThorough(version: number): boolean {
  return length(0, 1) === 1 || version === inject('postgres')[0]!.version;
}

/**
 * A migrated database of the test's own, copied from a template in some 100 ms. Without a version it
 * is on the newest Postgres.
 */
export function freshDatabase(server?: OnServer): Promise<TestDatabase> {
  return create(server, async (admin, name, serverUrl) => {
    const template = await templateOf(admin, serverUrl);
    await whenUnused(() => admin.query(`create database ${name} template ${template}`));
  });
}

/** A database without tables, for tests of the migrations themselves. */
export function emptyDatabase(version?: number): Promise<TestDatabase> {
  return create(version, async (admin, name) => {
    await admin.query(`create database ${name}`);
  });
}

async function create(
  on: OnServer | undefined,
  make: (admin: pg.Client, name: string, serverUrl: string) => Promise<void>,
): Promise<TestDatabase> {
  const server = typeof on === 'object' ? on : serverOf(on);
  const name = `test_${process.pid}_${randomBytes(6).toString('hex')}`;
  await withAdmin(server.url, (admin) => make(admin, name, server.url));
  return {
    url: databaseUrl(server.url, name),
    name,
    version: server.version,
    drop: () =>
      withAdmin(server.url, async (admin) => {
        await admin.query(`drop database if exists ${name} with (force)`);
      }),
  };
}

function serverOf(version: number | undefined): { version: number; url: string } {
  const servers = inject('postgres');
  const server = version === undefined ? servers[0] : servers.find((s) => s.version === version);
  if (!server) throw new Error(`There is no Postgres ${version ?? ''} in this run.`);
  return server;
}

/**
 * The migrated template, made by whoever comes first while the others wait. It is named by the SQL it
 * was made of, so a changed migration in watch mode gets a template of its own.
 */
async function templateOf(admin: pg.Client, url: string): Promise<string> {
  const template = `template_${sqlKey()}`;
  await admin.query('select pg_advisory_lock(7466)');
  try {
    const found = await admin.query('select from pg_database where datname = $1', [template]);
    if (found.rowCount === 0) {
      const unfinished = `${template}_unfinished`;
      await admin.query(`drop database if exists ${unfinished} with (force)`);
      await admin.query(`create database ${unfinished}`);
      await migrate(databaseUrl(url, unfinished));
      await whenUnused(() => admin.query(`alter database ${unfinished} rename to ${template}`));
    }
    return template;
  } finally {
    await admin.query('select pg_advisory_unlock(7466)');
  }
}

/** A connection that was just closed may still be leaving: the server waits 5 s itself, then says so. */
async function whenUnused(statement: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await statement();
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== '55006' || attempt === 5) throw error;
      await sleep(100);
    }
  }
}

function sqlKey(): string {
  const hash = createHash('sha256');
  const folder = join(root, 'db');
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  for (const name of names.filter((name) => /\.sql$|migrat/.test(name)).sort()) {
    if (/\.\w+$/.test(name)) hash.update(name).update(readFileSync(join(folder, name)));
  }
  return hash.digest('hex').slice(0, 12);
}

async function withAdmin<T>(url: string, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}

function databaseUrl(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}
