-- The tables state the truth: every count, status and transition that must never be is refused by a named rule here.

-- The app's role may call the functions and read; it writes nothing itself. Roles belong to the
-- whole server, so that two databases may create it at the same moment, and an administrator may
-- have made it before for an owner who can't.
do $$
begin
  if not exists (select from pg_roles r where r.rolname = 'tahan_app') then
    create role tahan_app nologin;
  end if;
exception
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise exception 'the owner % may not create the role tahan_app', current_user
      using errcode = 'insufficient_privilege',
        hint = format('let an administrator run: create role tahan_app; grant tahan_app to %I', current_user);
end
$$;

do $$
declare
  -- Since 16 whoever creates a role may grant it, but not take it.
  v_since_16 boolean := current_setting('server_version_num')::integer >= 160000;
begin
  if not pg_has_role(current_user, 'tahan_app', case when v_since_16 then 'SET' else 'MEMBER' end) then
    execute format('grant tahan_app to %I%s', current_user, case when v_since_16 then ' with set true' end);
  end if;
exception
  when insufficient_privilege then
    raise exception 'the owner % may not take the role tahan_app', current_user
      using errcode = 'insufficient_privilege',
        hint = format('let an administrator run: grant tahan_app to %I', current_user);
end
$$;

do $$
begin
  -- No temporary tables: one named like ours would be read in place of it by a careless function.
  execute format('revoke temporary on database %I from public', current_database());
  execute format('grant connect on database %I to tahan_app', current_database());
  -- A paused client must not keep a bin's row for ever (F44).
  execute format('alter database %I set idle_in_transaction_session_timeout = %L', current_database(), '10s');
end
$$;

create table tahan.installation (
  only_one boolean not null default true,
  -- Hold ids are v5 uuids under this salt: deterministic for the shop's retries, not to be guessed from outside.
  salt uuid not null default gen_random_uuid(),
  functions_hash text,
  constraint installation_only_one primary key (only_one),
  constraint installation_is_true check (only_one)
);
insert into tahan.installation default values;

create table tahan.api_keys (
  id uuid not null default gen_random_uuid(),
  role text not null,
  name text not null,
  hash bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  revoked_at timestamptz,
  constraint api_keys_id primary key (id),
  constraint api_keys_hash_once unique (hash),
  constraint api_keys_hash_is_sha256 check (octet_length(hash) = 32),
  constraint api_keys_role_known check (role in ('shop', 'operator'))
);

create table tahan.products (
  sku text collate "C" not null,
  name text not null default '',
  active boolean not null default true,
  price_minor bigint,
  currency text,
  hold_seconds integer not null default 600,
  max_hold_seconds integer not null default 1800,
  max_extensions integer not null default 2,
  per_buyer_limit integer,
  late_payment text not null default 'refund',
  allocation text not null default 'in_order',
  display text not null default 'exact',
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  constraint products_sku primary key (sku),
  constraint products_sku_form check (sku ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$'),
  constraint products_name_length check (char_length(name) <= 200),
  -- 50 lines of 10,000 at this price still fit a JavaScript integer.
  constraint products_price_minor_range check (price_minor is null or price_minor between 0 and 10000000000),
  constraint products_currency_form check (currency is null or currency ~ '^[A-Z]{3}$'),
  constraint products_price_has_currency check ((price_minor is null) = (currency is null)),
  constraint products_max_hold_seconds_range check (max_hold_seconds between 1 and 86400),
  constraint products_hold_seconds_range check (hold_seconds between 1 and max_hold_seconds),
  constraint products_max_extensions_range check (max_extensions between 0 and 100),
  constraint products_per_buyer_limit_range check (per_buyer_limit is null or per_buyer_limit >= 0),
  constraint products_late_payment_known check (late_payment in ('refund', 'accept_if_available', 'review')),
  constraint products_allocation_known check (allocation in ('in_order', 'spread')),
  constraint products_display_known check (display in ('exact', 'bands'))
);

-- fillfactor 50 and no index on a count: 99 % of the updates then stay on their page (HOT).
create table tahan.bins (
  id bigint generated always as identity,
  sku text collate "C" not null,
  code text collate "C" not null,
  available integer not null default 0,
  held integer not null default 0,
  sold integer not null default 0,
  safety_stock integer not null default 0,
  total bigint not null generated always as (available::bigint + held + sold) stored,
  -- Counts movements only, so that the chain of a bin has no hole.
  version bigint not null default 0,
  updated_at timestamptz not null default clock_timestamp(),
  constraint bins_id primary key (id),
  constraint bins_code_once unique (sku, code),
  constraint bins_of_product foreign key (sku) references tahan.products (sku),
  constraint bins_code_form check (code ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$'),
  constraint bins_available_not_negative check (available >= 0),
  constraint bins_held_not_negative check (held >= 0),
  constraint bins_sold_not_negative check (sold >= 0),
  constraint bins_safety_stock_range check (safety_stock between 0 and 2000000000),
  constraint bins_total_capped check (available::bigint + held + sold <= 2000000000)
) with (fillfactor = 50);

create table tahan.holds (
  id uuid not null,
  buyer_id text not null,
  idempotency_key text not null,
  request_hash text not null,
  status text not null,
  reason text,
  expires_at timestamptz,
  extensions integer not null default 0,
  late_payment text,
  payment_provider text,
  payment_id text,
  refusal jsonb,
  metadata jsonb not null default '{}',
  created_at timestamptz not null,
  closed_at timestamptz,
  constraint holds_id primary key (id),
  constraint holds_one_per_key unique (buyer_id, idempotency_key),
  constraint holds_buyer_length check (char_length(buyer_id) between 1 and 200),
  constraint holds_key_length check (char_length(idempotency_key) between 1 and 255),
  constraint holds_status_known check (status in ('HELD', 'CONFIRMED', 'CANCELLED', 'EXPIRED', 'REJECTED')),
  constraint holds_extensions_not_negative check (extensions >= 0),
  constraint holds_late_payment_known check (late_payment in ('refund', 'accept_if_available', 'review')),
  constraint holds_end_unless_rejected check ((status = 'REJECTED') = (expires_at is null)),
  constraint holds_policy_unless_rejected check ((status = 'REJECTED') = (late_payment is null)),
  constraint holds_refusal_when_rejected check ((status = 'REJECTED') = (refusal is not null)),
  constraint holds_closed_unless_held check ((status = 'HELD') = (closed_at is null)),
  constraint holds_payment_when_confirmed check (
    (status = 'CONFIRMED') = (payment_id is not null) and (payment_id is null) = (payment_provider is null))
);
create index holds_by_time on tahan.holds (created_at, id);
create index holds_open on tahan.holds (id) where status = 'HELD';

create table tahan.hold_lines (
  hold_id uuid not null,
  sku text collate "C" not null,
  quantity integer not null,
  unit_price_minor bigint,
  -- The hold's end while it is HELD, else null: how a claim finds a product's overdue units without
  -- reading the backlog of any other product (28 refusals a second with 50,000 overdue holds elsewhere).
  open_until timestamptz,
  constraint hold_lines_once primary key (hold_id, sku),
  constraint hold_lines_of_hold foreign key (hold_id) references tahan.holds (id),
  constraint hold_lines_of_product foreign key (sku) references tahan.products (sku),
  constraint hold_lines_quantity_range check (quantity between 1 and 10000),
  constraint hold_lines_price_not_negative check (unit_price_minor is null or unit_price_minor >= 0)
);
create index hold_lines_open on tahan.hold_lines (sku, open_until) where open_until is not null;

create table tahan.allocations (
  hold_id uuid not null,
  bin_id bigint not null,
  quantity integer not null,
  returned integer not null default 0,
  constraint allocations_once primary key (hold_id, bin_id),
  constraint allocations_of_hold foreign key (hold_id) references tahan.holds (id),
  constraint allocations_of_bin foreign key (bin_id) references tahan.bins (id),
  constraint allocations_quantity_positive check (quantity > 0),
  constraint allocations_returned_range check (returned between 0 and quantity)
);

create table tahan.movements (
  id bigint generated always as identity,
  bin_id bigint not null,
  bin_version bigint not null,
  sku text collate "C" not null,
  hold_id uuid,
  request_id text,
  type text not null,
  quantity integer not null,
  from_available integer not null,
  from_held integer not null,
  from_sold integer not null,
  to_available integer not null,
  to_held integer not null,
  to_sold integer not null,
  reason text not null,
  actor text not null,
  metadata jsonb not null default '{}',
  created_at timestamptz not null,
  constraint movements_id primary key (id),
  -- A bin's movements are ordered by its version: ids and times are not in commit order.
  constraint movements_chain unique (bin_id, bin_version),
  constraint movements_of_bin foreign key (bin_id) references tahan.bins (id),
  constraint movements_of_hold foreign key (hold_id) references tahan.holds (id),
  constraint movements_quantity_positive check (quantity > 0),
  constraint movements_reason_given check (reason ~ '\S'),
  constraint movements_actor_given check (actor ~ '\S'),
  constraint movements_add_up check (
    case type
      when 'reserve' then
        (to_available, to_held, to_sold) = (from_available - quantity, from_held + quantity, from_sold)
      when 'confirm_sold' then
        (to_available, to_held, to_sold) = (from_available, from_held - quantity, from_sold + quantity)
      when 'release_reservation' then
        (to_available, to_held, to_sold) = (from_available + quantity, from_held - quantity, from_sold)
      when 'restock' then
        (to_available, to_held, to_sold) = (from_available + quantity, from_held, from_sold)
      when 'manual_adjustment' then
        abs(to_available - from_available) = quantity and (to_held, to_sold) = (from_held, from_sold)
      when 'return' then
        (to_available, to_held, to_sold) = (from_available + quantity, from_held, from_sold - quantity)
      else false
    end)
);
create index movements_by_product on tahan.movements (sku, created_at);
create index movements_by_hold on tahan.movements (hold_id) where hold_id is not null;

create table tahan.orders (
  hold_id uuid not null,
  order_number text collate "C" not null,
  currency text,
  total_minor bigint,
  placed_at timestamptz not null,
  constraint orders_hold primary key (hold_id),
  constraint orders_number_once unique (order_number),
  constraint orders_of_hold foreign key (hold_id) references tahan.holds (id),
  constraint orders_total_has_currency check ((total_minor is null) = (currency is null)),
  constraint orders_total_range check (total_minor is null or total_minor between 0 and 9007199254740991)
);

create table tahan.payments (
  provider text not null,
  payment_id text not null,
  hold_id uuid not null,
  amount_minor bigint not null,
  currency text not null,
  status text not null,
  -- The moment it succeeded, not its first event; and whether that was in time: decided once, never computed again.
  received_at timestamptz,
  in_time boolean,
  settlement text,
  settlement_reason text,
  created_at timestamptz not null default clock_timestamp(),
  constraint payments_once primary key (provider, payment_id),
  constraint payments_of_hold foreign key (hold_id) references tahan.holds (id),
  constraint payments_amount_range check (amount_minor between 0 and 9007199254740991),
  constraint payments_currency_form check (currency ~ '^[A-Z]{3}$'),
  constraint payments_status_known check (status in ('succeeded', 'failed', 'refunded')),
  constraint payments_stamped_when_succeeded check (
    status <> 'succeeded' or (received_at is not null and in_time is not null)),
  constraint payments_settlement_known check (
    settlement in ('APPLIED', 'REFUND_DUE', 'REFUNDED', 'ACCEPTED_LATE', 'NEEDS_REVIEW')),
  constraint payments_reason_known check (
    settlement_reason in ('LATE', 'SURPLUS', 'MISMATCH', 'RETURNED', 'REVIEWED')),
  constraint payments_reason_of_settlement check (settlement is not null or settlement_reason is null),
  constraint payments_failed_unsettled check (status <> 'failed' or settlement is null)
);
create index payments_by_hold on tahan.payments (hold_id);
-- At most one payment owns a hold's units.
create unique index payments_one_accepted on tahan.payments (hold_id)
  where settlement in ('APPLIED', 'ACCEPTED_LATE');

create table tahan.payment_events (
  provider text not null,
  event_id text not null,
  payment_id text not null,
  -- Null while unmatched: a repeat may still find the hold (B09).
  hold_id uuid,
  type text not null,
  -- json keeps what was sent, also what jsonb can't hold.
  payload json not null,
  deliveries integer not null default 1,
  received_at timestamptz not null,
  constraint payment_events_once primary key (provider, event_id),
  constraint payment_events_of_hold foreign key (hold_id) references tahan.holds (id)
);

-- What a change that is not idempotent by the hold's state answered, per row it changed.
create table tahan.requests (
  scope text not null,
  request_id text not null,
  request jsonb not null,
  answer jsonb not null,
  created_at timestamptz not null,
  constraint requests_once primary key (scope, request_id)
);

create table tahan.setting_changes (
  id bigint generated always as identity,
  what text not null,
  before jsonb,
  after jsonb not null,
  actor text not null,
  reason text,
  created_at timestamptz not null,
  constraint setting_changes_id primary key (id),
  constraint setting_changes_reason_given check (before is null or (reason is not null and reason ~ '\S'))
);

create function tahan.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only: % refused', tg_table_name, lower(tg_op) using errcode = 'TH901';
end
$$;
create trigger movements_append_only before update or delete on tahan.movements
  for each row execute function tahan.refuse_change();
create trigger movements_no_truncate before truncate on tahan.movements
  for each statement execute function tahan.refuse_change();
create trigger setting_changes_append_only before update or delete on tahan.setting_changes
  for each row execute function tahan.refuse_change();
create trigger holds_no_delete before delete on tahan.holds
  for each row execute function tahan.refuse_change();
create trigger holds_no_truncate before truncate on tahan.holds
  for each statement execute function tahan.refuse_change();
create trigger products_no_delete before delete on tahan.products
  for each row execute function tahan.refuse_change();
create trigger bins_no_delete before delete on tahan.bins
  for each row execute function tahan.refuse_change();

create function tahan.check_transition() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.status not in ('HELD', 'REJECTED') then
      raise exception 'a hold begins HELD or REJECTED, not %', new.status using errcode = 'TH902';
    end if;
    return new;
  end if;
  if (new.id, new.buyer_id, new.idempotency_key, new.request_hash, new.created_at)
     is distinct from (old.id, old.buyer_id, old.idempotency_key, old.request_hash, old.created_at) then
    raise exception 'hold %: whose it is never changes', old.id using errcode = 'TH902';
  end if;
  if old.status <> 'HELD' and new.expires_at is distinct from old.expires_at then
    raise exception 'hold %: the end of a closed hold never changes', old.id using errcode = 'TH902';
  end if;
  if new.status <> old.status
     and not (old.status = 'HELD' and new.status in ('CONFIRMED', 'CANCELLED', 'EXPIRED'))
     and not (old.status = 'EXPIRED' and new.status = 'CONFIRMED') then
    raise exception 'hold %: % never becomes %', old.id, old.status, new.status using errcode = 'TH902';
  end if;
  return new;
end
$$;
-- Not "of status": that would let a change of the end alone through.
create trigger holds_transition before insert or update on tahan.holds
  for each row execute function tahan.check_transition();
