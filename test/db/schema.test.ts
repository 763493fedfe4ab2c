import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import { checkSchema, migrate, SchemaMismatch } from '../../db/migrate.js';
import { dumpSchema } from '../../db/schemaDump.js';
import { describeEachPostgres, emptyDatabase } from '../setup/database.js';
import type { TestDatabase } from '../setup/database.js';
import { tally } from './books.js';
import { atOnce } from './rivals.js';
import { withClient } from './clients.js';

describeEachPostgres('migrations', (version) => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await emptyDatabase(version);
  });
  afterAll(() => database.drop());
  const checked = async () => {
    const db = openDatabase({ url: database.url, takeAppRole: true });
    await checkSchema(db).finally(() => db.close());
  };

  it('a database that was never migrated is refused, and the refusal says how to migrate it', async () => {
    const db = openDatabase({ url: database.url });
    await expect(checkSchema(db)).rejects.toThrow(/lacks 0001_tables.*npm run migrate/);
    await expect(checkSchema(db)).rejects.toThrow(SchemaMismatch);
    await db.close();
  });

  it('twenty that migrate one empty database at once: one of them does all of it, the others find nothing to do', async () => {
    const results = await atOnce(20, () => migrate(database.url));
    const workers = results.filter(({ applied }) => applied.length > 0);
    expect(workers).toEqual([
      { applied: expect.arrayContaining(['0001_tables']) as string[], functions: true },
    ]);
    expect(tally(results.map(({ functions }) => ({ outcome: String(functions) })))).toEqual({
      true: 1,
      false: 19,
    });
    await checked();
    expect(await migrate(database.url)).toEqual({ applied: [], functions: false });
  });

  it('db/schema.sql is what the migrations and functions of this program make of an empty database', async () => {
    const file = new URL('../../db/schema.sql', import.meta.url);
    expect(await dumpSchema(database.url)).toBe(readFileSync(file, 'utf8'));
  });

  it('functions that differ from the program are replaced by the next migration, with their privileges', async () => {
    await withClient(database.url, async (owner) => {
      await owner.query(`create or replace function tahan.instant(p_at timestamptz) returns text language sql as 'select ''?''';
        grant execute on function tahan.ms_until to public;
        update tahan.installation set functions_hash = 'older'`);
      expect(await migrate(database.url)).toEqual({ applied: [], functions: true });
      const { rows } = await owner.query(
        `select tahan.instant('2026-01-02 03:04:05.678+00') as at, has_function_privilege('tahan_app', 'tahan.ms_until(timestamptz, timestamptz)', 'execute') as leaked`,
      );
      expect(rows).toEqual([{ at: '2026-01-02T03:04:05.678Z', leaked: false }]);
    });
  });

  it('a database that a newer program has migrated is refused by name, by migrate and by the check, and is left alone', async () => {
    await withClient(database.url, async (owner) => {
      await owner.query(`insert into tahan.migrations (name, run_on) values ('9999_later', now())`);
      const newer = /newer tahan \(it has 9999_later/;
      await expect(migrate(database.url)).rejects.toThrow(newer);
      await expect(checked()).rejects.toThrow(newer);
      const { rows } = await owner.query(
        `select count(*)::int as count from tahan.migrations where name like '9999%'`,
      );
      expect(rows).toEqual([{ count: 1 }]);
      await owner.query(`delete from tahan.migrations where name = '9999_later'`);
    });
    await checked();
  });

  it('F44: whoever leaves a transaction idle is ended after 10 s, in this database, whatever the role', async () => {
    await withClient(database.url, async (owner) => {
      const { rows } = await owner.query(
        `select setrole, setconfig from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
         where d.datname = current_database()`,
      );
      expect(rows).toEqual([
        { setrole: 0, setconfig: ['idle_in_transaction_session_timeout=10s'] },
      ]);
    });
  });
});
