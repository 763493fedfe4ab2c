import { expect, it } from 'vitest';
import { describeEachPostgres } from '../setup/database.js';
import { sharedShop } from './shop.js';

/**
 * One statement per named CHECK that breaks this rule and no other, on top of the rows made below.
 * The list is compared with the catalogue, so a new CHECK needs a line here.
 */
const violations: Record<string, string> = {
  installation_is_true: `insert into installation (only_one) values (false)`,
  api_keys_hash_is_sha256: `insert into api_keys (role, name, hash) values ('shop', 'x', 'short')`,
  api_keys_role_known: `insert into api_keys (role, name, hash) values ('root', 'x', sha256('x'))`,

  products_sku_form: `insert into products (sku) values ('-dash')`,
  products_name_length: `update products set name = repeat('x', 201)`,
  products_price_minor_range: `update products set price_minor = -1, currency = 'EUR'`,
  products_currency_form: `update products set price_minor = 1, currency = 'eur'`,
  products_price_has_currency: `update products set price_minor = 1`,
  products_hold_seconds_range: `update products set hold_seconds = 0`,
  products_max_hold_seconds_range: `update products set max_hold_seconds = 86401`,
  products_max_extensions_range: `update products set max_extensions = -1`,
  products_per_buyer_limit_range: `update products set per_buyer_limit = -1`,
  products_late_payment_known: `update products set late_payment = 'perhaps'`,
  products_allocation_known: `update products set allocation = 'random'`,
  products_display_known: `update products set display = 'secret'`,

  bins_code_form: `insert into bins (sku, code) values ('p', 'two words')`,
  bins_available_not_negative: `update bins set available = -1`,
  bins_held_not_negative: `update bins set held = -1`,
  bins_sold_not_negative: `update bins set sold = -1`,
  bins_safety_stock_range: `update bins set safety_stock = -1`,
  bins_total_capped: `update bins set available = 2000000000, held = 1`,

  holds_buyer_length: hold({ buyer_id: `''` }),
  holds_key_length: hold({ idempotency_key: `repeat('k', 256)` }),
  // The trigger on transitions would be first.
  holds_status_known: `set local session_replication_role = replica;
    update holds set status = 'LOST', closed_at = now()`,
  holds_extensions_not_negative: `update holds set extensions = -1`,
  holds_late_payment_known: hold({ late_payment: `'perhaps'` }),
  holds_end_unless_rejected: hold({ expires_at: 'null' }),
  holds_policy_unless_rejected: hold({ late_payment: 'null' }),
  holds_refusal_when_rejected: hold({ refusal: `'{}'` }),
  holds_closed_unless_held: hold({ closed_at: 'now()' }),
  holds_payment_when_confirmed: hold({ payment_provider: `'x'`, payment_id: `'x'` }),

  hold_lines_quantity_not_negative: `update hold_lines set quantity = -1, released = 2, open_until = null`,
  hold_lines_released_not_negative: `update hold_lines set released = -1, quantity = 2`,
  hold_lines_asked_range: `update hold_lines set quantity = 10000, released = 1`,
  hold_lines_returned_range: `update hold_lines set returned = 2`,
  hold_lines_empty_is_closed: `update hold_lines set quantity = 0, released = 1`,
  hold_lines_price_not_negative: `update hold_lines set unit_price_minor = -1`,
  allocations_quantity_positive: `update allocations set quantity = 0`,
  allocations_returned_range: `update allocations set returned = quantity + 1`,

  carts_buyer_length: `insert into carts values ('', 'p', 1)`,
  carts_quantity_range: `insert into carts values ('b', 'p', 0)`,

  movements_quantity_positive: movement({ quantity: '0', to_available: '0' }),
  movements_reason_given: movement({ reason: `' '` }),
  movements_actor_given: movement({ actor: `''` }),
  movements_add_up: movement({ to_sold: '1' }),

  orders_total_has_currency: `insert into orders values ((select id from holds), 'x', 'EUR', null, now())`,
  orders_total_range: `insert into orders values ((select id from holds), 'x', 'EUR', -1, now())`,

  payments_amount_range: payment({ amount_minor: '-1' }),
  payments_currency_form: payment({ currency: `'EURO'` }),
  payments_status_known: payment({ status: `'maybe'` }),
  payments_stamped_when_succeeded: payment({ in_time: 'null' }),
  payments_settlement_known: payment({ settlement: `'GONE'` }),
  payments_reason_known: payment({ settlement: `'REFUND_DUE'`, settlement_reason: `'MOOD'` }),
  payments_reason_of_settlement: payment({ settlement_reason: `'LATE'` }),
  payments_failed_unsettled: payment({ status: `'failed'`, settlement: `'REFUND_DUE'` }),

  refunds_cause_form: refund({ cause: `'whim'` }),
  refunds_amount_positive: refund({ amount_minor: '0' }),
  refunds_state_known: refund({ state: `'LOST'` }),
  refunds_called_when_counted: refund({ calls: '1' }),
  refunds_not_needed_uncalled: refund({
    state: `'NOT_NEEDED'`,
    calls: '1',
    first_called_at: 'now()',
  }),
  refunds_executed_after_call: refund({ state: `'EXECUTED'` }),

  buyer_rules_is_true: `insert into buyer_rules (only_one) values (false)`,
  buyer_rules_max_open_holds_range: `update buyer_rules set max_open_holds = -1`,
  buyer_rules_cool_down_holds_range: coolDown({ holds: '0' }),
  buyer_rules_cool_down_within_range: coolDown({ within_seconds: '0' }),
  buyer_rules_cool_down_seconds_range: coolDown({ seconds: '2592001' }),
  buyer_rules_cool_down_whole: coolDown({ seconds: 'null' }),

  setting_changes_reason_given: `insert into setting_changes (what, before, after, actor, created_at)
    values ('x', '{}', '{}', 'x', now())`,
};

function insert(table: string, row: Record<string, string>): string {
  return `insert into ${table} (${Object.keys(row).join(', ')}) values (${Object.values(row).join(', ')})`;
}

function coolDown(difference: Record<string, string>): string {
  const rule = { holds: '1', within_seconds: '1', seconds: '1', ...difference };
  const set = Object.entries(rule).map(([name, value]) => `cool_down_${name} = ${value}`);
  return `update buyer_rules set ${set.join(', ')}`;
}

function hold(difference: Record<string, string>): string {
  return insert('holds', {
    id: 'gen_random_uuid()',
    buyer_id: `'b'`,
    idempotency_key: `'k'`,
    request_hash: `'h'`,
    status: `'HELD'`,
    expires_at: 'now()',
    late_payment: `'refund'`,
    created_at: 'now()',
    ...difference,
  });
}

function movement(difference: Record<string, string>): string {
  const zero = { from_available: '0', from_held: '0', from_sold: '0', to_held: '0', to_sold: '0' };
  return insert('movements', {
    bin_id: '(select id from bins)',
    bin_version: '99',
    sku: `'p'`,
    type: `'restock'`,
    quantity: '1',
    ...zero,
    to_available: '1',
    reason: `'r'`,
    actor: `'a'`,
    created_at: 'now()',
    ...difference,
  });
}

function payment(difference: Record<string, string>): string {
  return insert('payments', {
    provider: `'x'`,
    payment_id: `'x'`,
    hold_id: '(select id from holds)',
    amount_minor: '1',
    currency: `'EUR'`,
    status: `'succeeded'`,
    received_at: 'now()',
    in_time: 'true',
    ...difference,
  });
}

/** With the payment that it is of. */
function refund(difference: Record<string, string>): string {
  return `${payment({})}; ${insert('refunds', {
    provider: `'x'`,
    payment_id: `'x'`,
    cause: `'settlement'`,
    amount_minor: '1',
    key: `'k'`,
    created_at: 'now()',
    updated_at: 'now()',
    ...difference,
  })}`;
}

describeEachPostgres('the tables themselves', (version) => {
  const shop = sharedShop(version);

  it('R30: each named CHECK refuses its violation, by its own name', async () => {
    const owner = await shop.session();
    await owner.query(`begin`);
    await owner.query(`insert into products (sku) values ('p')`);
    await owner.query(`insert into bins (sku, code, available, held) values ('p', 'b', 5, 1)`);
    await owner.query(hold({}));
    await owner.query(`insert into hold_lines select id, 'p', 1, null, expires_at from holds`);
    await owner.query(`insert into allocations select h.id, b.id, 1 from holds h, bins b`);
    for (const valid of [hold({ idempotency_key: `'l'` }), movement({}), payment({}), refund({})]) {
      await owner.query('savepoint valid');
      await owner.query(valid);
      await owner.query('rollback to valid');
    }

    const refused: Record<string, string | undefined> = {};
    for (const [name, statement] of Object.entries(violations)) {
      await owner.query('savepoint try');
      refused[name] = await owner.query(statement).then(
        () => 'accepted',
        (error: { constraint?: string; message: string }) => error.constraint ?? error.message,
      );
      await owner.query('rollback to try');
    }
    await owner.query('rollback');
    const names = Object.keys(violations);
    expect(refused).toEqual(Object.fromEntries(names.map((name) => [name, name])));

    const catalogue = await shop.query<{ conname: string }>(
      `select conname from pg_constraint where contype = 'c' and connamespace = 'tahan'::regnamespace`,
    );
    expect(names.sort()).toEqual(catalogue.map(({ conname }) => conname).sort());
  });

  it('R30, A15: total is counted by Postgres, a key is compared bytewise, and no count has an index, so that a change of one stays on its page', async () => {
    const sku = await shop.product([3]);
    await shop.hold({ [sku]: 1 });
    const [bin] = await shop.query(
      `select available, held, sold, total, safety_stock, version, updated_at > now() - interval '1 minute' as fresh
       from tahan.bins where sku = $1`,
      [sku],
    );
    expect(bin).toEqual({
      available: 2,
      held: 1,
      sold: 0,
      total: '3',
      safety_stock: 0,
      version: '2',
      fresh: true,
    });
    const collations = await shop.query(
      `select distinct c.collname from pg_attribute a join pg_collation c on c.oid = a.attcollation
       join pg_class t on t.oid = a.attrelid
       where t.relnamespace = 'tahan'::regnamespace and t.relkind = 'r' and a.attname = 'sku'`,
    );
    expect(collations).toEqual([{ collname: 'C' }]);
    const indexed = await shop.query(
      `select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
       where i.indrelid = 'tahan.bins'::regclass
         and a.attname in ('available', 'held', 'sold', 'total', 'version', 'updated_at')`,
    );
    expect(indexed).toEqual([]);
  });
});
