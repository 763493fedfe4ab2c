import { expect, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { putProduct } from '../../db/product.js';
import { describeEachPostgres } from '../setup/database.js';
import { claimCall } from './rivals.js';
import { sharedShop } from './shop.js';
import { codeOf } from './clients.js';

describeEachPostgres('what a database refuses from anybody', (version) => {
  const shop = sharedShop(version);

  it('A1: every function that decides refuses to run in REPEATABLE READ or SERIALIZABLE, and the pools ask for READ COMMITTED themselves', async () => {
    const sku = await shop.product([1]);
    const hold = await shop.hold({ [sku]: 1 });
    const calls: [string, unknown[]][] = [
      claimCall(await shop.request({ [sku]: 1 })),
      [`select tahan.confirm($1, 'x', 'x')`, [hold]],
      [`select tahan.expire($1)`, [hold]],
      [`select tahan.cancel($1, 'x', 'x')`, [hold]],
      [`select tahan.extend($1, 1, 'x', 'x')`, [hold]],
      [`select tahan.record_payment('x', 'x', 'x', 'succeeded', $1, null, 1, 'EUR', '{}')`, [hold]],
      [`select tahan.adjust($1, 'b1', 1, 'x', 'x', 'x', null)`, [sku]],
      [`select tahan.restock($1, 'b1', 1, 'x', 'x', 'x', null)`, [sku]],
      [`select tahan.count_stock($1, 'b1', 1, 1, 'x', 'x', 'x', null)`, [sku]],
      [`select tahan.move_stock($1, 'b1', 'b1', 1, 'x', 'x', 'x', null)`, [sku]],
      [`select tahan.import_stock('[]', false, false, $1, 'x')`, [sku]],
      [`select tahan.put_product($1, '{"name": "x"}', 'x', 'x')`, [sku]],
      [`select tahan.put_bin($1, 'b1', 1, 'x', 'x')`, [sku]],
      [`select tahan.after_deadline($1, now())`, [hold]],
    ];
    const client = await shop.session();
    for (const level of ['repeatable read', 'serializable']) {
      for (const [text, values] of calls) {
        await client.query(`begin isolation level ${level}`);
        expect([text, await codeOf(client.query(text, values))]).toEqual([text, 'TH900']);
        await client.query('rollback');
      }
    }
    await shop.query(
      `do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database()); end $$`,
    );
    const db = openDatabase({ url: shop.url, takeAppRole: true });
    expect((await expire(db, hold)).outcome).toBe('NOT_DUE');
    expect((await putProduct(db, sku, {}, { actor: 'x', reason: null })).outcome).toBe('UNCHANGED');
    await db.close();
  });

  it('F50, R02: of 25 changes of status only HELD to CONFIRMED, CANCELLED or EXPIRED and EXPIRED to CONFIRMED pass the trigger, and no hold is born closed', async () => {
    const states = ['HELD', 'CONFIRMED', 'CANCELLED', 'EXPIRED', 'REJECTED'];
    const owner = await shop.session();
    const insert = (
      status: string,
    ) => `insert into holds (id, buyer_id, idempotency_key, request_hash, status,
        expires_at, late_payment, refusal, closed_at, payment_provider, payment_id, created_at)
      select gen_random_uuid(), 'b', 'k', 'h', s, case when s <> 'REJECTED' then now() end,
        case when s <> 'REJECTED' then 'refund' end, case when s = 'REJECTED' then '{}'::jsonb end,
        case when s <> 'HELD' then now() end, case when s = 'CONFIRMED' then 'x' end,
        case when s = 'CONFIRMED' then 'x' end, now()
      from (values ('${status}')) v (s)`;
    const passed: string[] = [];
    for (const from of states) {
      for (const to of states) {
        await owner.query('begin');
        await owner.query('set local session_replication_role = replica');
        await owner.query(insert(from));
        await owner.query('set local session_replication_role = origin');
        const changed = await codeOf(
          owner.query(
            `update holds set status = $1::text, closed_at = case when $1 = 'HELD' then null else now() end,
               payment_provider = case when $1 = 'CONFIRMED' then 'x' end,
               payment_id = case when $1 = 'CONFIRMED' then 'x' end
             where buyer_id = 'b'`,
            [to],
          ),
        );
        if (from !== to && changed === 'done') passed.push(`${from} ${to}`);
        if (changed !== 'done') expect([from, to, changed]).toEqual([from, to, 'TH902']);
        await owner.query('rollback');
      }
      await owner.query('begin');
      const born = await codeOf(owner.query(insert(from)));
      expect([from, born]).toEqual([from, ['HELD', 'REJECTED'].includes(from) ? 'done' : 'TH902']);
      await owner.query('rollback');
    }
    expect(passed).toEqual([
      'HELD CONFIRMED',
      'HELD CANCELLED',
      'HELD EXPIRED',
      'EXPIRED CONFIRMED',
    ]);
  });

  it('F50: the end of a closed hold and whose a hold is never change, and no hold, product or bin is deleted', async () => {
    const sku = await shop.product([2]);
    const hold = await shop.hold({ [sku]: 1 });
    const fixed = [
      `buyer_id = 'x'`,
      `idempotency_key = 'x'`,
      `request_hash = 'x'`,
      `id = gen_random_uuid()`,
    ];
    for (const change of [...fixed, `created_at = now()`]) {
      const text = `update tahan.holds set ${change} where id = '${hold}'`;
      expect([text, await codeOf(shop.query(text))]).toEqual([text, 'TH902']);
    }
    await shop.shiftClock(601_000);
    await expire(shop.db, hold);
    const later = `update tahan.holds set expires_at = expires_at + interval '1 hour' where id = $1`;
    expect(await codeOf(shop.query(later, [hold]))).toBe('TH902');
    for (const text of [
      'delete from holds',
      'delete from products',
      'delete from bins',
      'truncate holds cascade',
    ]) {
      const statement = text.replace(/(from|truncate) /, '$1 tahan.');
      expect([text, await codeOf(shop.query(statement))]).toEqual([text, 'TH901']);
    }
  });
});
