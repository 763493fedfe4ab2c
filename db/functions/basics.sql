-- Small pieces that every function of the contract is made of. None of them is callable by the app
-- except the clock and the renderings.

-- The one clock of all deadlines. clock_timestamp(), never now(), which stands still within a
-- transaction (F4). A test database replaces this function to shift time. Read it into a variable
-- after the locks: in a WHERE it would run once per row and bound no index scan.
create or replace function tahan.tahan_clock() returns timestamptz
language sql volatile as $$ select clock_timestamp() $$;

-- RFC 3339 in UTC with milliseconds.
create or replace function tahan.instant(p_at timestamptz) returns text
language sql stable as $$ select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;

-- Milliseconds from one instant to another, rounded up and at least 1: NOT_DUE(0) would spin.
create or replace function tahan.ms_until(p_end timestamptz, p_now timestamptz) returns integer
language sql immutable as $$
  select least(greatest(ceil(extract(epoch from p_end - p_now) * 1000), 1), 2147483647)::integer
$$;

-- The advisory lock of a claim's key: one bigint for buyer and key, since the id is made of both.
create or replace function tahan.key_lock(p_hold_id uuid) returns bigint
language sql immutable as $$ select hashtextextended(p_hold_id::text, 4710) $$;

create or replace function tahan.buyer_lock(p_buyer_id text) returns bigint
language sql immutable as $$ select hashtextextended(p_buyer_id, 4711) $$;

-- "Lock, then look" needs a fresh snapshot for each statement after the wait (a paid hold was
-- expired under REPEATABLE READ, without an error).
create or replace function tahan.require_read_committed() returns void
language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'tahan runs in READ COMMITTED only, not in %', current_setting('transaction_isolation')
      using errcode = 'TH900', hint = 'set default_transaction_isolation to read committed on the connection';
  end if;
end
$$;

-- Lets the next lock wait take what is left of the call's budget and of the claim's deadline.
-- lock_timeout counts per wait, so it is set anew before each one; never 0, which waits for ever.
-- The budget is an interval of the real clock; the deadline belongs to tahan_clock().
create or replace function tahan.wait_within(p_budget_ends timestamptz, p_deadline timestamptz) returns void
language plpgsql volatile as $$
declare
  v_left double precision := extract(epoch from p_budget_ends - clock_timestamp()) * 1000;
  v_set text;
begin
  if p_deadline is not null then
    v_left := least(v_left, extract(epoch from p_deadline - tahan.tahan_clock()) * 1000);
  end if;
  -- Assigned, not performed: an expression costs a tenth of a statement.
  v_set := set_config('lock_timeout', greatest(floor(v_left), 1)::bigint || 'ms', true);
end
$$;

-- Locks holds in the order given (by id). One statement a row: one SELECT over several rows may wait
-- lock_timeout for each of them (1,000 ms, three rows: 2,400 ms without an error).
create or replace function tahan.lock_holds(p_ids uuid[], p_budget_ends timestamptz, p_deadline timestamptz)
returns void language plpgsql volatile as $$
declare
  v_id uuid;
begin
  foreach v_id in array p_ids loop
    perform tahan.wait_within(p_budget_ends, p_deadline);
    perform from tahan.holds h where h.id = v_id for no key update;
  end loop;
end
$$;

-- Locks bins in the order given (by sku and id), with no condition that a rival could change.
create or replace function tahan.lock_bins(p_ids bigint[], p_budget_ends timestamptz, p_deadline timestamptz)
returns void language plpgsql volatile as $$
declare
  v_id bigint;
begin
  foreach v_id in array p_ids loop
    perform tahan.wait_within(p_budget_ends, p_deadline);
    perform from tahan.bins b where b.id = v_id for no key update;
  end loop;
end
$$;

-- A hold's payment that stops expire, cancel and reclaim: succeeded, in time, and not settled yet.
-- VOLATILE: called after a wait it must see what was committed meanwhile.
create or replace function tahan.pending_payment(p_hold_id uuid) returns jsonb
language sql volatile as $$
  select jsonb_build_object('provider', p.provider, 'paymentId', p.payment_id)
  from tahan.payments p
  where p.hold_id = p_hold_id and p.status = 'succeeded' and p.in_time and p.settlement is null
  order by p.received_at, p.provider, p.payment_id
  limit 1
$$;

-- The bins of a hold's units, in lock order.
create or replace function tahan.bins_of_hold(p_hold_id uuid) returns bigint[]
language sql volatile as $$
  select coalesce(array_agg(b.id order by b.sku, b.id), '{}')
  from tahan.allocations a join tahan.bins b on b.id = a.bin_id
  where a.hold_id = p_hold_id
$$;

-- Changes a locked bin's counts by one movement and writes it to the ledger. The type says which
-- counts move; the CHECKs of both tables refuse anything that does not add up.
create or replace function tahan.move_units(
  p_bin_id bigint, p_type text, p_quantity integer, p_hold_id uuid, p_request_id text,
  p_reason text, p_actor text, p_metadata jsonb, p_now timestamptz, p_sign integer default 1)
returns void language plpgsql volatile as $$
declare
  v_available integer := 0;
  v_held integer := 0;
  v_sold integer := 0;
begin
  case p_type
    when 'reserve' then v_available := -p_quantity; v_held := p_quantity;
    when 'confirm_sold' then v_held := -p_quantity; v_sold := p_quantity;
    when 'release_reservation' then v_available := p_quantity; v_held := -p_quantity;
    when 'restock' then v_available := p_quantity;
    when 'manual_adjustment' then v_available := p_sign * p_quantity;
    when 'return' then v_available := p_quantity; v_sold := -p_quantity;
  end case;
  with changed as (
    update tahan.bins b
    set available = b.available + v_available, held = b.held + v_held, sold = b.sold + v_sold,
        version = b.version + 1, updated_at = p_now
    where b.id = p_bin_id
    returning b.id, b.version, b.sku, b.available, b.held, b.sold
  )
  insert into tahan.movements (
    bin_id, bin_version, sku, hold_id, request_id, type, quantity,
    from_available, from_held, from_sold, to_available, to_held, to_sold,
    reason, actor, metadata, created_at)
  select c.id, c.version, c.sku, p_hold_id, p_request_id, p_type, p_quantity,
    c.available - v_available, c.held - v_held, c.sold - v_sold, c.available, c.held, c.sold,
    p_reason, p_actor, coalesce(p_metadata, '{}'), p_now
  from changed c;
  if not found then
    raise exception 'no bin %', p_bin_id using errcode = 'TH903';
  end if;
end
$$;

-- Closes a HELD hold and gives its units back to exactly the bins they came from (R06). The hold and
-- its bins are locked by the caller.
create or replace function tahan.give_back(
  p_hold_id uuid, p_status text, p_reason text, p_actor text, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_part record;
begin
  for v_part in
    select a.bin_id, a.quantity from tahan.allocations a where a.hold_id = p_hold_id order by a.bin_id
  loop
    perform tahan.move_units(v_part.bin_id, 'release_reservation', v_part.quantity, p_hold_id, null,
      p_reason, p_actor, '{}', p_now);
  end loop;
  update tahan.hold_lines l set open_until = null where l.hold_id = p_hold_id;
  update tahan.holds h set status = p_status, reason = p_reason, closed_at = p_now
  where h.id = p_hold_id and h.status = 'HELD';
  if not found then
    raise exception 'hold % is not HELD', p_hold_id using errcode = 'TH903';
  end if;
end
$$;

-- Takes units of one product from its locked bins for a hold, and notes where from. The caller has
-- seen that there are enough. in_order: filled in id order, spanning; spread: one bin that covers
-- the line alone, beginning at a bin chosen by the hold, else in id order.
create or replace function tahan.take_units(
  p_hold_id uuid, p_sku text, p_quantity integer, p_bin_ids bigint[], p_spread boolean,
  p_reason text, p_actor text, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_left integer := p_quantity;
  v_bin record;
  v_part integer;
begin
  for v_bin in
    select b.id, b.available - b.safety_stock as sellable
    from tahan.bins b
    where b.id = any (p_bin_ids) and b.sku = p_sku and b.available > b.safety_stock
    order by
      p_spread and b.available - b.safety_stock >= p_quantity desc,
      case when p_spread then hashint8extended(b.id, hashtextextended(p_hold_id::text, 0)) end,
      b.id
  loop
    v_part := least(v_left, v_bin.sellable);
    insert into tahan.allocations (hold_id, bin_id, quantity) values (p_hold_id, v_bin.id, v_part);
    perform tahan.move_units(v_bin.id, 'reserve', v_part, p_hold_id, null, p_reason, p_actor, '{}', p_now);
    v_left := v_left - v_part;
    exit when v_left = 0;
  end loop;
  if v_left > 0 then
    raise exception 'short of % units of %', v_left, p_sku using errcode = 'TH903';
  end if;
end
$$;

-- Units of a product that a buyer holds or has bought and kept: what a limit counts. Released units give
-- the allowance back, and so do returned ones (B17).
create or replace function tahan.bought_units(p_buyer_id text, p_sku text) returns bigint
language sql volatile as $$
  select coalesce(sum(l.quantity - l.returned), 0)
  from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
  where h.buyer_id = p_buyer_id and h.status in ('HELD', 'CONFIRMED') and l.sku = p_sku
$$;

-- Twelve characters of 32, without I, L, O and U: readable, and 2^60 of them, so not to be guessed.
create or replace function tahan.new_order_number() returns text
language sql volatile as $$
  select string_agg(
    case when i in (4, 8) then '-' else '' end
      || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (get_byte(r.bytes, i + case when i > 5 then 3 else 0 end) & 31) + 1, 1),
    '' order by i)
  from (select uuid_send(gen_random_uuid()) as bytes) r, generate_series(0, 11) i
$$;
