-- claim: takes the units of all lines, or of none, and writes the hold, in one transaction (R03).
--
-- Order of locks: the claim's key, the buyer, overdue holds by id, bins by (sku, id). A try stands
-- in one savepoint: when it needs more overdue holds than it locked, holds and bins are both let go
-- and the next try locks a bigger batch, so that nothing earlier is waited for while something later
-- is held (a second reclaim inside the same try: 18 deadlocks in 2,984 calls).
-- An order without lines (p_lines is null) takes its buyer's cart: read under the buyer's lock, emptied
-- with HELD, and left as it is by every other answer (R33).
-- Outcomes and what they leave behind: db/claim.ts.
create or replace function tahan.claim(
  p_hold_id uuid, p_buyer_id text, p_key text, p_request_hash text, p_lines jsonb,
  p_hold_seconds integer, p_deadline timestamptz, p_order boolean, p_metadata jsonb,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp
-- Left to itself Postgres plans the statements over arrays anew in every call, for their true length: 16 % of a claim.
set plan_cache_mode = force_generic_plan as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_deadline timestamptz := p_deadline;
  v_waiting_for text;
  v_known jsonb;
  v_lines jsonb := p_lines;
  v_from_cart boolean := p_lines is null and p_order;
  v_skus text[];
  v_quantities integer[];
  v_terms record;
  v_batch integer := 8;
  -- A line of a product with several buckets looks for one of them first, and needs all only when none covers it alone.
  v_pass text := 'ALL';
  v_now timestamptz;
  v_refusal jsonb;
  v_answer jsonb;
begin
  perform require_read_committed();
  -- A repeat after the deadline still looks for its row, so only the budget bounds its wait.
  if tahan_clock() >= p_deadline then
    v_deadline := null;
  end if;

  v_waiting_for := 'KEY';
  perform wait_within(v_budget_ends, v_deadline);
  perform pg_advisory_xact_lock(key_lock(p_hold_id));

  v_known := known_claim(p_hold_id, p_buyer_id, p_key, p_request_hash);
  if v_known is not null then
    return v_known || case when v_from_cart and v_known ->> 'outcome' = 'ALREADY'
      then jsonb_build_object('lines', lines_of_hold(p_hold_id)) else '{}' end;
  end if;
  if tahan_clock() >= p_deadline then
    return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
  end if;

  if v_from_cart then
    v_waiting_for := 'BUYER';
    perform lock_cart(p_buyer_id, v_budget_ends, v_deadline);
    v_lines := cart_lines(p_buyer_id);
    if tahan_clock() >= p_deadline then
      return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
    elsif v_lines is null then
      return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata,
        jsonb_build_object('outcome', 'CART_EMPTY'));
    end if;
  end if;

  -- The lines, one for each product, and what these have in common: the smallest hold time and cap, the strictest late
  -- policy. One statement, since each costs more to begin than it takes to read a product.
  select array_agg(m.sku order by m.sku) as skus, array_agg(m.quantity order by m.sku) as quantities,
    min(m.smallest) as smallest, array_agg(p.allocation = 'spread' order by m.sku) as spread,
    min(m.sku) filter (where p.sku is null) as unknown_sku, min(m.sku) filter (where not p.active) as inactive_sku,
    min(p.hold_seconds) as hold_seconds, min(p.max_hold_seconds) as max_hold_seconds,
    case
      when bool_or(p.late_payment = 'refund') then 'refund'
      when bool_or(p.late_payment = 'review') then 'review'
      else 'accept_if_available'
    end as late_payment,
    bool_or(p.per_buyer_limit is not null) or exists (
      select from buyer_rules r where r.max_open_holds is not null or r.cool_down_holds is not null) as limited,
    min(coalesce(p.currency, '')) <> max(coalesce(p.currency, '')) as mixed
  into v_terms
  from (
    select l.sku collate "C" as sku, sum(l.quantity)::integer as quantity, min(l.quantity) as smallest
    from jsonb_to_recordset(v_lines) as l (sku text, quantity integer)
    group by 1
  ) m
  left join products p on p.sku = m.sku;
  v_skus := v_terms.skus;
  v_quantities := v_terms.quantities;
  if v_skus is null then
    raise exception 'a claim needs lines' using errcode = '22023';
  end if;
  -- Lines of -5 and 6 would add up to one unit (F11); all other quantities meet the CHECKs.
  if v_terms.smallest < 1 then
    raise exception 'a line of % units', v_terms.smallest using errcode = '22023';
  end if;
  if v_terms.unknown_sku is not null then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'sku', v_terms.unknown_sku);
  end if;
  if p_hold_seconds is not null and p_hold_seconds not between 1 and v_terms.max_hold_seconds then
    return jsonb_build_object('outcome', 'HOLD_TOO_LONG', 'maxHoldSeconds', v_terms.max_hold_seconds);
  end if;
  if v_terms.inactive_sku is not null then
    return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata,
      jsonb_build_object('outcome', 'PRODUCT_INACTIVE', 'sku', v_terms.inactive_sku));
  end if;
  if p_order and v_terms.mixed then
    return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata,
      jsonb_build_object('outcome', 'MIXED_CURRENCIES', 'currencies', (
        select jsonb_agg(distinct p.currency) from products p where p.sku = any (v_skus))));
  end if;

  if v_terms.limited then
    v_waiting_for := 'BUYER';
    perform wait_within(v_budget_ends, v_deadline);
    perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));
    v_now := tahan_clock();
    if p_deadline <= v_now then
      return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
    end if;
    v_refusal := refused_by_rules(p_buyer_id, v_now);
    if v_refusal is not null then
      return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata, v_refusal);
    end if;
  end if;

  v_waiting_for := 'STOCK';
  if cardinality(v_skus) = 1 and v_terms.spread[1] then
    v_pass := 'QUICK';
  end if;
  loop
    begin
      v_answer := try_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, v_skus, v_quantities, v_terms.spread,
        coalesce(p_hold_seconds, v_terms.hold_seconds), v_terms.late_payment, v_terms.limited,
        p_order, p_metadata, v_pass, v_batch, v_budget_ends, p_deadline);
      if v_answer ->> 'outcome' = 'HELD' then
        if v_from_cart then
          perform empty_cart(p_buyer_id);
          v_answer := v_answer || jsonb_build_object('lines', v_lines);
        end if;
        return v_answer;
      end if;
      -- Whatever else it says, it must leave no stock change, no ledger row and no lock.
      raise exception using errcode = 'TH904';
    exception
      when sqlstate 'TH904' then null;
    end;
    if v_answer ->> 'outcome' = 'CLAIM_TOO_LATE' then
      return v_answer;
    elsif v_answer ->> 'outcome' = 'NO_BIN' then
      v_pass := case v_pass when 'QUICK' then 'WAIT' else 'ALL' end;
      continue;
    elsif v_answer ->> 'outcome' <> 'MORE_OVERDUE' then
      return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata, v_answer);
    elsif tahan_clock() >= p_deadline then
      return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
    elsif clock_timestamp() >= v_budget_ends then
      raise exception using errcode = '55P03';
    end if;
    v_batch := least(v_batch * 4, 16384);
  end loop;
exception
  when lock_not_available then
    -- Whichever came first has ended the wait: the claim's deadline or the call's budget.
    if v_deadline is not null and v_deadline - tahan_clock() <= v_budget_ends - clock_timestamp() then
      return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
    elsif v_waiting_for = 'KEY' then
      raise exception 'an identical claim is still running' using errcode = 'TH001';
    else
      raise exception 'the stock of this claim is locked by someone else' using errcode = 'TH003';
    end if;
end
$$;

-- What an earlier run of this claim has left, or null. Shows nothing to another buyer, key or body.
create or replace function tahan.known_claim(
  p_hold_id uuid, p_buyer_id text, p_key text, p_request_hash text)
returns jsonb language plpgsql volatile as $$
declare
  v_hold tahan.holds;
begin
  -- The hold of this id, else the one that has used the buyer's key under another id.
  select k.* into v_hold
  from (
    select h.* from tahan.holds h where h.id = p_hold_id
    union all
    select h.* from tahan.holds h where h.buyer_id = p_buyer_id and h.idempotency_key = p_key
  ) k
  limit 1;
  if not found then
    return null;
  end if;
  if (v_hold.id, v_hold.buyer_id, v_hold.idempotency_key, v_hold.request_hash)
     is distinct from (p_hold_id, p_buyer_id, p_key, p_request_hash) then
    return jsonb_build_object('outcome', 'KEY_REUSED');
  end if;
  if v_hold.status = 'REJECTED' then
    return v_hold.refusal || jsonb_build_object('requestHash', v_hold.request_hash);
  end if;
  return jsonb_build_object(
    'outcome', 'ALREADY', 'holdId', v_hold.id, 'requestHash', v_hold.request_hash,
    'status', v_hold.status, 'expiresAt', tahan.instant(v_hold.expires_at),
    'remainingMs', tahan.ms_until(v_hold.expires_at, tahan.tahan_clock()));
end
$$;

-- What a hold is of, in the form of a claim's lines.
create or replace function tahan.lines_of_hold(p_hold_id uuid) returns jsonb
language sql volatile as $$
  select jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity) order by l.sku)
  from tahan.hold_lines l where l.hold_id = p_hold_id
$$;

-- Keeps a refusal with all that its answer shows: a slow first attempt can't take the units after
-- this one said no, and the same claim gets the same answer for ever.
create or replace function tahan.reject_claim(
  p_hold_id uuid, p_buyer_id text, p_key text, p_request_hash text, p_metadata jsonb, p_refusal jsonb)
returns jsonb language plpgsql volatile as $$
declare
  v_now timestamptz := tahan.tahan_clock();
begin
  insert into tahan.holds (
    id, buyer_id, idempotency_key, request_hash, status, reason, refusal, metadata, created_at, closed_at)
  values (
    p_hold_id, p_buyer_id, p_key, p_request_hash, 'REJECTED', p_refusal ->> 'outcome', p_refusal,
    coalesce(p_metadata, '{}'), v_now, v_now);
  return p_refusal || jsonb_build_object('requestHash', p_request_hash);
end
$$;

-- One try: HELD, a refusal, CLAIM_TOO_LATE, MORE_OVERDUE (there are overdue unpaid holds that this try did not
-- lock), or NO_BIN (this pass found no bin that covers the line alone). Anything but HELD is rolled back by the caller, locks and all.
create or replace function tahan.try_claim(
  p_hold_id uuid, p_buyer_id text, p_key text, p_request_hash text, p_skus text[],
  p_quantities integer[], p_spread boolean[], p_hold_seconds integer, p_late_payment text, p_limited boolean,
  p_order boolean, p_metadata jsonb, p_pass text, p_batch integer, p_budget_ends timestamptz, p_deadline timestamptz)
returns jsonb language plpgsql volatile as $$
declare
  v_short text[];
  v_over text[];
  v_all bigint[] := '{}';
  v_overdue uuid[] := '{}';
  v_reclaim uuid[] := '{}';
  v_bins bigint[];
  v_now timestamptz;
  v_refusal jsonb;
  v_hold uuid;
  v_bin record;
  v_left integer[] := p_quantities;
  v_i integer;
  v_from bigint[] := '{}';
  v_units integer[] := '{}';
begin
  -- A plain read of the bins, in the order in which they are locked: products that they can't cover are short.
  for v_bin in
    select b.id, b.sku, greatest(b.available - b.safety_stock, 0) as sellable
    from bins b where b.sku = any (p_skus) order by b.sku, b.id
  loop
    v_i := array_position(p_skus, v_bin.sku);
    v_all := v_all || v_bin.id;
    v_left[v_i] := greatest(v_left[v_i] - v_bin.sellable, 0);
  end loop;
  if 0 < any (v_left) then
    select array_agg(w.sku order by w.sku) into v_short from unnest(p_skus, v_left) as w (sku, short) where w.short > 0;
  end if;
  if p_limited then
    v_over := over_limit(p_buyer_id, p_skus, p_quantities);
  end if;

  -- One bin that covers the only line alone: one that nobody has locked, at the second try one to wait for.
  if p_pass <> 'ALL' and v_short is null and v_over is null then
    if p_pass = 'QUICK' then
      v_bins := quick_bin(p_hold_id, p_skus[1], p_quantities[1]);
    else
      v_bins := awaited_bin(p_hold_id, p_skus[1], p_quantities[1], p_budget_ends, p_deadline);
    end if;
    if v_bins is null then
      return jsonb_build_object('outcome', 'NO_BIN');
    end if;
  end if;

  if v_bins is null then
    if v_short is not null or v_over is not null then
      v_now := tahan_clock();
      v_overdue := overdue_holds(v_short, p_buyer_id, v_over, v_now, p_batch);
      perform lock_holds(v_overdue, p_budget_ends, p_deadline);
      -- Look again, now that they are locked: a payment or a rival may have been first (A1).
      v_now := tahan_clock();
      select coalesce(array_agg(h.id order by h.id), '{}') into v_reclaim
      from holds h
      where h.id = any (v_overdue) and h.status = 'HELD' and h.expires_at <= v_now
        and pending_payment(h.id) is null;
    end if;
    -- One ordered pass over the bins of the products and of those holds, which may have other products.
    v_bins := v_all;
    if v_reclaim <> '{}' then
      select array_agg(b.id order by b.sku, b.id) into v_bins
      from bins b
      where b.id in (
        select o.id from bins o where o.sku = any (p_skus)
        union all
        select a.bin_id from allocations a where a.hold_id = any (v_reclaim));
    end if;
    perform lock_bins(v_bins, p_budget_ends, p_deadline);
  end if;

  -- A clock that steps back must not undo what was decided under the locks of the overdue holds.
  v_now := greatest(v_now, tahan_clock());
  if v_now >= p_deadline then
    return jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
  end if;
  foreach v_hold in array v_reclaim loop
    perform give_back(v_hold, 'EXPIRED', 'payment window over', 'claim ' || p_hold_id, v_now);
  end loop;

  if p_limited then
    v_over := over_limit(p_buyer_id, p_skus, p_quantities);
    if v_over is not null then
      if cardinality(overdue_holds(null, p_buyer_id, v_over, v_now, 1)) > 0 then
        return jsonb_build_object('outcome', 'MORE_OVERDUE');
      end if;
      select jsonb_build_object('outcome', 'BUYER_LIMIT', 'sku', p.sku, 'limit', p.per_buyer_limit)
      into v_refusal
      from products p where p.sku = v_over[1];
      return v_refusal;
    end if;
  end if;

  v_left := p_quantities;
  -- Only from the locked bins: one that was added meanwhile is not ours to take from (A11). in_order: filled in id
  -- order, spanning; spread: one bin that covers the line alone, beginning at a bin chosen by the hold, else in id order.
  for v_bin in
    select b.id, b.sku, b.available - b.safety_stock as sellable
    from bins b
    where b.id = any (v_bins) and b.available > b.safety_stock
    order by
      case when p_spread[array_position(p_skus, b.sku)]
        and b.available - b.safety_stock >= p_quantities[array_position(p_skus, b.sku)]
        then hashint8extended(b.id, hashtextextended(p_hold_id::text, 0)) end nulls last,
      b.id
  loop
    v_i := array_position(p_skus, v_bin.sku);
    if v_left[v_i] > 0 then
      v_from := v_from || v_bin.id;
      v_units := v_units || least(v_left[v_i], v_bin.sellable);
      v_left[v_i] := v_left[v_i] - least(v_left[v_i], v_bin.sellable);
    end if;
  end loop;
  if 0 < any (v_left) then
    select jsonb_agg(jsonb_build_object('sku', w.sku, 'requested', w.quantity, 'available', w.quantity - w.short) order by w.sku),
      array_agg(w.sku)
    into v_refusal, v_short
    from unnest(p_skus, p_quantities, v_left) as w (sku, quantity, short)
    where w.short > 0;
    if cardinality(overdue_holds(v_short, null, null, v_now, 1)) > 0 then
      return jsonb_build_object('outcome', 'MORE_OVERDUE');
    end if;
    return jsonb_build_object('outcome', 'INSUFFICIENT_STOCK', 'shortfalls', v_refusal);
  end if;

  -- The end counts from here, after all waits: a hold of one second must not be born overdue (A14).
  insert into holds (
    id, buyer_id, idempotency_key, request_hash, status, expires_at, late_payment, metadata, created_at)
  values (
    p_hold_id, p_buyer_id, p_key, p_request_hash, 'HELD', v_now + p_hold_seconds * interval '1 second',
    p_late_payment, coalesce(p_metadata, '{}'), v_now);
  insert into hold_lines (hold_id, sku, quantity, unit_price_minor, open_until)
  select p_hold_id, w.sku, w.quantity, p.price_minor, v_now + p_hold_seconds * interval '1 second'
  from unnest(p_skus, p_quantities) as w (sku, quantity) join products p on p.sku = w.sku collate "C";
  insert into allocations (hold_id, bin_id, quantity)
  select p_hold_id, w.bin_id, w.units from unnest(v_from, v_units) as w (bin_id, units);
  with changed as (
    update bins b
    set available = b.available - w.units, held = b.held + w.units, version = b.version + 1, updated_at = v_now
    from unnest(v_from, v_units) as w (bin_id, units)
    where b.id = w.bin_id
    returning b.id, b.version, b.sku, b.available, b.held, b.sold, w.units
  )
  insert into movements (
    bin_id, bin_version, sku, hold_id, type, quantity, from_available, from_held, from_sold,
    to_available, to_held, to_sold, reason, actor, created_at)
  select c.id, c.version, c.sku, p_hold_id, 'reserve', c.units, c.available + c.units, c.held - c.units, c.sold,
    c.available, c.held, c.sold, 'checkout', 'buyer ' || p_buyer_id, v_now
  from changed c;
  if p_order then
    insert into orders (hold_id, order_number, currency, total_minor, placed_at)
    select p_hold_id, new_order_number(), max(p.currency), sum(l.unit_price_minor * l.quantity), v_now
    from hold_lines l join products p on p.sku = l.sku where l.hold_id = p_hold_id;
  end if;
  return jsonb_build_object(
    'outcome', 'HELD', 'holdId', p_hold_id, 'requestHash', p_request_hash,
    'expiresAt', instant(v_now + p_hold_seconds * interval '1 second'),
    'remainingMs', ms_until(v_now + p_hold_seconds * interval '1 second', tahan_clock()));
end
$$;

-- Products whose limit this claim would pass; null when none. The count is a statement of its own,
-- after the buyer's lock: together with it, it read 0 for a true 1 (A12).
create or replace function tahan.over_limit(p_buyer_id text, p_skus text[], p_quantities integer[])
returns text[] language sql volatile as $$
  select array_agg(p.sku order by p.sku)
  from unnest(p_skus, p_quantities) as w (sku, quantity) join tahan.products p on p.sku = w.sku collate "C"
  where p.per_buyer_limit is not null
    and tahan.bought_units(p_buyer_id, p.sku) + w.quantity > p.per_buyer_limit
$$;

-- One unlocked bin that covers a line alone, locked, or null. When it returns none it may still have
-- locked bins that a rival made too small, so the locks are rolled back with the try (A3).
create or replace function tahan.quick_bin(p_hold_id uuid, p_sku text, p_quantity integer) returns bigint[]
language plpgsql volatile as $$
declare
  v_bin bigint;
begin
  select b.id into v_bin
  from tahan.bins b
  where b.sku = p_sku and b.available - b.safety_stock >= p_quantity
  order by hashint8extended(b.id, hashtextextended(p_hold_id::text, 0))
  limit 1
  for no key update skip locked;
  return case when v_bin is not null then array[v_bin] end;
end
$$;

-- When all of them are locked: one bin that covers a line alone, waited for and locked, or null. Without it the first
-- claim that found none free waited for all bins in order and kept each that it got, so that no other found one free
-- either: ten bins sold slower than one. It holds no other bin while it waits, and a bin that a rival made too small is
-- let go with the try before the others are waited for (A3).
create or replace function tahan.awaited_bin(
  p_hold_id uuid, p_sku text, p_quantity integer, p_budget_ends timestamptz, p_deadline timestamptz)
returns bigint[] language plpgsql volatile as $$
declare
  v_bin bigint;
begin
  select b.id into v_bin
  from tahan.bins b
  where b.sku = p_sku and b.available - b.safety_stock >= p_quantity
  order by hashint8extended(b.id, hashtextextended(p_hold_id::text, 0))
  limit 1;
  perform tahan.lock_bins(array[v_bin], p_budget_ends, p_deadline);
  select b.id into v_bin from tahan.bins b where b.id = v_bin and b.available - b.safety_stock >= p_quantity;
  return case when v_bin is not null then array[v_bin] end;
end
$$;

-- Overdue unpaid holds by id, the oldest first into the batch: those with units of the given
-- products, and the buyer's own that use up a limit. Only through the index of open lines.
create or replace function tahan.overdue_holds(
  p_skus text[], p_buyer_id text, p_over text[], p_now timestamptz, p_batch integer)
returns uuid[] language sql volatile as $$
  select coalesce(array_agg(o.hold_id order by o.hold_id), '{}')
  from (
    select c.hold_id
    from unnest(p_skus) as s (sku)
    cross join lateral (
      select l.hold_id
      from tahan.hold_lines l
      where l.sku = s.sku collate "C" and l.open_until <= p_now
        and not exists (
          select from tahan.payments p
          where p.hold_id = l.hold_id and p.status = 'succeeded' and p.in_time and p.settlement is null)
      order by l.open_until
      limit p_batch) c
    union
    select h.id
    from tahan.holds h
    where h.buyer_id = p_buyer_id and h.status = 'HELD' and h.expires_at <= p_now
      and exists (
        select from tahan.hold_lines l where l.hold_id = h.id and l.sku = any (p_over) and l.quantity > 0)
      and not exists (
        select from tahan.payments p
        where p.hold_id = h.id and p.status = 'succeeded' and p.in_time and p.settlement is null)
  ) o
$$;
