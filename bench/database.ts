import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { postgresAccount } from '../cli/servers/account.js';
import { pickPorts } from '../cli/servers/ports.js';
import { startPostgres, type Postgres } from '../cli/servers/postgres.js';
import { embeddedPostgres } from '../cli/servers/postgresBinaries.js';
import { migrate } from '../db/migrate.js';

let server: Promise<Postgres> | undefined;

/** A Postgres as a shop has it: every commit waits for the disk. */
async function start(): Promise<Postgres> {
  const say = (step: string) => void process.stderr.write(`${step}\n`);
  const account = postgresAccount(say);
  const { postgres } = await pickPorts({ postgres: 0 });
  const home = mkdtempSync(join(tmpdir(), 'tahan-bench-postgres-'));
  chmodSync(home, 0o711);
  return startPostgres({
    binaries: embeddedPostgres(account, say),
    account,
    home,
    port: postgres.number,
    durable: true,
    temporary: true,
    say: () => undefined,
  });
}

/** Of the server itself; each connection is a child of it. */
export async function postgresPid(): Promise<number> {
  return (await (server ??= start())).pid;
}

export async function stopPostgres(): Promise<void> {
  await (await server)?.stop();
}

/** Runs `work` on a database of its own, migrated or empty, on the run's own Postgres. */
export async function onFreshDatabase<T>(
  work: (url: string, sql: <Row extends object>(text: string) => Promise<Row[]>) => Promise<T>,
  { migrated = true } = {},
): Promise<T> {
  const { url: urlOf } = await (server ??= start());
  const name = `bench_${process.pid}_${randomBytes(4).toString('hex')}`;
  await once(urlOf('postgres'), `create database ${name}`);
  try {
    const url = urlOf(name);
    if (migrated) await migrate(url);
    return await work(url, (text) => once(url, text));
  } finally {
    await once(urlOf('postgres'), `drop database ${name} with (force)`);
  }
}

async function once<Row extends object>(url: string, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const result = await client.query<Row>(text);
    return result.rows;
  } finally {
    await client.end();
  }
}

/** Version of the server, and the settings that decide what a commit costs. */
export async function describePostgres(): Promise<Record<string, unknown>> {
  return onFreshDatabase(
    async (_url, sql) => {
      const [row] = await sql<Record<string, unknown>>(`
        select current_setting('server_version') as postgres, current_setting('fsync') as fsync,
          current_setting('synchronous_commit') as synchronous_commit,
          current_setting('shared_buffers') as shared_buffers`);
      return row ?? {};
    },
    { migrated: false },
  );
}
