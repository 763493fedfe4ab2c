import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { migrate } from '../../db/migrate.js';
import { describeEachPostgres, emptyDatabase } from '../setup/database.js';
import type { TestDatabase } from '../setup/database.js';
import { codeOf, withClient } from './clients.js';

describeEachPostgres('the role of the app (S20)', (version) => {
  let database: TestDatabase;
  let app: pg.Client;
  const role = `app_${randomBytes(4).toString('hex')}`;
  const owned = <T>(work: (owner: pg.Client) => Promise<T>) => withClient(database.url, work);

  beforeAll(async () => {
    // Privileges on a database are not copied from a template, so this one is migrated itself.
    database = await emptyDatabase(version);
    await migrate(database.url);
    await owned((owner) =>
      owner.query(`create role ${role} login password 'secret' in role tahan_app`),
    );
    const url = new URL(database.url);
    [url.username, url.password] = [role, 'secret'];
    app = new pg.Client({ connectionString: url.href });
    await app.connect();
  });
  afterAll(async () => {
    await app.end();
    await owned((owner) => owner.query(`drop role ${role}`));
    await database.drop();
  });

  it('it reads every table and writes none: INSERT, UPDATE, DELETE and TRUNCATE fail on each', async () => {
    const { rows: tables } = await app.query<{ name: string; column: string }>(
      `select c.oid::regclass::text as name, quote_ident(min(a.attname)) as column
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
       where c.relnamespace = 'tahan'::regnamespace and c.relkind = 'r' group by c.oid order by 1`,
    );
    expect(tables.length).toBeGreaterThan(13);
    for (const { name, column } of tables) {
      expect(await codeOf(app.query(`select count(*) from ${name}`)), name).toBe('done');
      for (const text of [
        `insert into ${name} default values`,
        `update ${name} set ${column} = ${column}`,
        `delete from ${name}`,
        `truncate ${name}`,
      ]) {
        expect([text, await codeOf(app.query(text))]).toEqual([text, '42501']);
      }
    }
  });

  it('it may call the functions of the contract and no other, and PUBLIC may call none', async () => {
    const { rows } = await app.query<{
      name: string;
      mine: boolean;
      everyones: boolean;
      safe: boolean;
    }>(
      `select p.proname as name, has_function_privilege(p.oid, 'execute') as mine,
         exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) where grantee = 0) as everyones,
         p.prosecdef and 'search_path=tahan, pg_temp' = any (p.proconfig) as safe
       from pg_proc p where p.pronamespace = 'tahan'::regnamespace order by p.proname collate "C"`,
    );
    expect(rows.filter(({ everyones }) => everyones)).toEqual([]);
    const mine = rows.filter((row) => row.mine);
    const reads = [
      'availability',
      'buyer_rules_set',
      'instant',
      'product_settings',
      'show_buyer_rules',
      'show_cart',
      'show_hold',
      'show_payment',
      'show_product',
      'tahan_clock',
    ];
    const changes = [
      'add_key',
      'adjust',
      'after_deadline',
      'cancel',
      'claim',
      'claim_batch',
      'confirm',
      'confirm_batch',
      'expire',
      'expire_batch',
      'extend',
    ];
    changes.push(
      'put_bin',
      'put_buyer_rules',
      'put_product',
      'record_payment',
      'restock',
      'revoke_key',
    );
    changes.push('put_cart_line', 'remove_cart_line', 'clear_cart');
    changes.push('count_stock', 'move_stock', 'import_stock');
    changes.push('release', 'return_sale', 'read_checkouts');
    changes.push(
      'request_refund',
      'begin_refund',
      'finish_refund',
      'decide_payment',
      'store_event',
    );
    expect(mine.map(({ name }) => name).sort()).toEqual([...reads, ...changes].sort());
    // With the rights of the owner, and no way to put a table of one's own in place of ours.
    expect(mine.filter(({ safe }) => safe).map(({ name }) => name)).toEqual(changes.sort());
    expect(rows.filter((row) => row.safe && !row.mine)).toEqual([]);
    for (const text of [
      `select tahan.move_units(1, 'restock', 9, null, 'x', 'x', 'x', '{}', now())`,
      `select tahan.give_back(gen_random_uuid(), 'CANCELLED', 'x', 'x', now())`,
      `select tahan.settle(null, null, 'APPLIED', null)`,
      `select tahan.empty_cart('somebody')`,
    ]) {
      expect([text, await codeOf(app.query(text))]).toEqual([text, '42501']);
    }
  });

  it('F50: it makes no temporary table, changes no definition, shifts no clock, takes no role and edits no hold', async () => {
    for (const text of [
      'create temp table bins (x int)',
      'create table tahan.x (x int)',
      'create table public.x (x int)',
      'create schema x',
      'alter table tahan.bins disable trigger all',
      'alter table tahan.bins drop constraint bins_available_not_negative',
      'drop table tahan.movements',
      `create or replace function tahan.tahan_clock() returns timestamptz language sql as 'select now()'`,
      'drop function tahan.claim',
      `set session_replication_role = 'replica'`,
      'set role postgres',
      'create role x',
      `update tahan.holds set status = 'HELD'`,
    ]) {
      const code = await codeOf(app.query(text));
      // 22023: there is no such role on this server, so it can't be taken either.
      expect([text, code]).toEqual([text, expect.stringMatching(/^(42501|22023)$/)]);
    }
  });
});
