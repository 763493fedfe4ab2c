import pg from 'pg';
import { runner } from 'node-pg-migrate';
import type { Database } from './database.js';
import { functionFiles, migrationNames, migrationsFolder } from './files.js';

/** The database and this program do not fit: a newer one was here, or the migrations have not run. */
export class SchemaMismatch extends Error {
  override readonly name = 'SchemaMismatch';
}

/** One lock for all who migrate at once; any constant that nobody else uses. */
const migrationLock = 7_411_830_001;

/**
 * Brings a database to this program's schema: numbered migrations first, then the SQL functions when
 * they differ. Safe when twenty processes call it at once: one works, the others wait and find
 * nothing to do. Runs as the owner. A database that a newer program has migrated is left alone.
 * @throws SchemaMismatch
 */
export async function migrate(
  ownerUrl: string,
): Promise<{ applied: string[]; functions: boolean }> {
  const client = new pg.Client({ connectionString: ownerUrl, application_name: 'tahan migrate' });
  client.on('error', () => {});
  await client.connect();
  try {
    await client.query('select pg_advisory_lock($1)', [migrationLock]);
    // A waiting ALTER would stop every claim behind it (C12).
    await client.query(
      `set lock_timeout = '5s'; set default_transaction_isolation = 'read committed'`,
    );
    await client.query('create schema if not exists tahan');
    refuseNewer(await appliedNames(client));
    const quiet = { debug() {}, info() {}, warn() {}, error() {} };
    const applied = await runner({
      dbClient: client,
      dir: migrationsFolder(),
      direction: 'up',
      migrationsTable: 'migrations',
      migrationsSchema: 'tahan',
      checkOrder: true,
      noLock: true,
      logger: quiet,
    });
    const functions = await replaceFunctions(client);
    return { applied: applied.map((migration) => migration.name), functions };
  } finally {
    await client.end();
  }
}

async function appliedNames(client: pg.Client): Promise<string[]> {
  const { rows: known } = await client.query<{ there: boolean }>(
    `select to_regclass('tahan.migrations') is not null as there`,
  );
  if (!known[0]?.there) return [];
  const { rows } = await client.query<{ name: string }>(
    'select name from tahan.migrations order by id',
  );
  return rows.map((row) => row.name);
}

function refuseNewer(applied: string[]): void {
  const ours = new Set(migrationNames());
  const newer = applied.filter((name) => !ours.has(name));
  if (newer.length > 0) {
    throw new SchemaMismatch(
      `the database was migrated by a newer tahan (it has ${newer.join(', ')}, which this one does not know); start that version, or restore a backup made before it`,
    );
  }
}

/** Replaces the functions in one transaction, if any of them differs from what the database has. */
async function replaceFunctions(client: pg.Client): Promise<boolean> {
  const { hash, files } = functionFiles();
  const { rows } = await client.query<{ functions_hash: string | null }>(
    'select functions_hash from tahan.installation',
  );
  if (rows[0]?.functions_hash === hash) return false;
  await client.query('begin');
  try {
    await client.query('set local check_function_bodies = off');
    for (const { name, text } of files) {
      await client.query(text).catch((error: unknown) => {
        throw new Error(`db/functions/${name}: ${(error as Error).message}`, { cause: error });
      });
    }
    await client.query('update tahan.installation set functions_hash = $1', [hash]);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
  return true;
}

/**
 * Refuses to go on when the database is not at this program's schema: for API and worker, which may
 * not migrate.
 * @throws SchemaMismatch, or DatabaseFault when Postgres can't be reached
 */
export async function checkSchema(db: Database): Promise<void> {
  const tables = await db.reads.rows<{ there: boolean }>({
    text: `select to_regclass('tahan.migrations') is not null
        and has_table_privilege('tahan.migrations', 'select') as there`,
  });
  const applied = tables[0]?.there
    ? await db.reads.rows<{ name: string }>({
        text: 'select name from tahan.migrations order by id',
      })
    : [];
  const names = applied.map((row) => row.name);
  refuseNewer(names);
  const missing = migrationNames().filter((name) => !names.includes(name));
  if (missing.length > 0) {
    throw new SchemaMismatch(
      `the database lacks ${missing.join(', ')}; run "npm run migrate" with DATABASE_URL set to its owner`,
    );
  }
}
