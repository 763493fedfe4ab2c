import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import { checkSchema, migrate } from '../../db/migrate.js';
import { putProduct } from '../../db/product.js';
import { describeEachPostgres, emptyDatabase } from '../setup/database.js';
import type { TestDatabase } from '../setup/database.js';

describeEachPostgres('an owner who is no superuser', (version) => {
  let database: TestDatabase;
  let admin: pg.Client;
  const owners: string[] = [];

  beforeAll(async () => {
    database = await emptyDatabase(version);
    admin = new pg.Client({ connectionString: database.url });
    await admin.connect();
  });
  afterAll(async () => {
    await admin.end();
    await database.drop();
    const server = new pg.Client({ connectionString: serverUrl() });
    await server.connect();
    for (const owner of owners) await server.query(`drop role if exists ${owner}`);
    await server.end();
  });

  function serverUrl(): string {
    const url = new URL(database.url);
    url.pathname = '/postgres';
    return url.href;
  }

  /** Makes the database the property of a new login; answers with its address. */
  async function owned(options: string): Promise<string> {
    const name = `owner_${randomBytes(4).toString('hex')}`;
    owners.push(name);
    await admin.query(`create role ${name} login password 'secret' ${options}`);
    await admin.query(`alter database ${database.name} owner to ${name}`);
    const url = new URL(database.url);
    url.username = name;
    url.password = 'secret';
    return url.href;
  }

  it('without the right to the role is told what an administrator must run, and then migrates and works as the app (S20)', async () => {
    // Another database of this server has made the role already, or this one would be refused earlier.
    await admin.query(
      `do $$ begin create role tahan_app nologin; exception when duplicate_object then null; end $$`,
    );
    const url = await owned('');
    const refused = migrate(url);
    await expect(refused).rejects.toThrow(/may not take the role tahan_app/);
    await expect(refused).rejects.toMatchObject({
      hint: expect.stringMatching(/^let an administrator run: grant tahan_app to owner_/) as string,
    });
    // What the creator of a role has since 16: it may grant it, and not take it.
    const rights = version >= 16 ? 'with admin true, set false, inherit false' : '';
    await admin.query(`grant tahan_app to ${owners.at(-1)!} ${rights}`);
    await migrate(url);
    const db = openDatabase({ url, takeAppRole: true });
    try {
      await checkSchema(db);
      const by = { actor: 'operator', reason: null };
      expect(await putProduct(db, 'OWNED', {}, by)).toEqual({ outcome: 'CREATED' });
      await expect(
        db.changes.rows({ text: `delete from tahan.setting_changes` }),
      ).rejects.toMatchObject({ code: '42501' });
    } finally {
      await db.close();
    }
  });

  it('and one that may not connect as the app hears why', async () => {
    const url = await owned('');
    await admin.query(`alter role ${owners.at(-1)!} nologin`);
    const db = openDatabase({ url });
    await expect(checkSchema(db)).rejects.toThrow(/not permitted to log in/);
    await db.close();
  });
});
