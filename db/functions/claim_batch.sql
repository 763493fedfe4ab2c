-- claim_batch: claims that met within a few milliseconds, decided in one transaction, first come first
-- served: as many are granted as fit, each whole or not at all (R03, R14). One row lock and one commit
-- for all of them in place of one each.
--
-- It decides only what is plain: a new key of one line, with nothing to wait for but the bins. Whatever
-- is not (a key in use or known, a second claim of a limited buyer, overdue units to take back, a fault
-- of the request) is answered ALONE and asked again with `claim`, which knows every case. So a busy or
-- poisoned claim never holds up or fails the others.
--
-- Locks: keys and buyers by trying, which never waits; then the bins in one ordered pass, like `claim`.
create or replace function tahan.claim_batch(
  p_ids uuid[], p_buyers text[], p_keys text[], p_hashes text[], p_skus text[], p_quantities integer[],
  p_hold_seconds integer[], p_deadlines timestamptz[], p_orders boolean[], p_metadata jsonb,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp
-- Like claim's: plans for the true length of the arrays would be made anew in every call.
set plan_cache_mode = force_generic_plan as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_alone constant jsonb := jsonb_build_object('outcome', 'ALONE');
  v_answers jsonb[] := array_fill(v_alone, array[cardinality(p_ids)]);
  v_claim record;
  v_plain integer[] := '{}';
  v_limited integer[];
  v_buyers text[] := '{}';
  v_bins bigint[];
  v_now timestamptz;
  v_skus text[];
  v_left bigint[];
  v_i integer;
  v_at integer;
  v_granted integer[] := '{}';
  v_refused integer[] := '{}';
  v_overdue jsonb := '{}';
begin
  perform require_read_committed();
  -- A rule about buyers is for `claim` to look at.
  if any_buyer_rule() then
    return to_jsonb(v_answers);
  end if;
  -- A second one with the same id waits for the first like any identical claim: alone, after this.
  select coalesce(array_agg(c.i order by c.i), '{}') into v_plain
  from (
    select min(w.i)::integer as i, w.id from unnest(p_ids) with ordinality as w (id, i) group by w.id
  ) c
  where pg_try_advisory_xact_lock(key_lock(c.id));

  -- Known keys and terms are read in new statements, now that the keys are locked.
  select coalesce(array_agg(w.i order by w.i), '{}'),
    coalesce(array_agg(w.i order by w.i) filter (where p.per_buyer_limit is not null), '{}')
  into v_plain, v_limited
  from unnest(v_plain) as w (i)
  join products p on p.sku = p_skus[w.i] collate "C"
  where p_quantities[w.i] between 1 and 10000 and p.active
    and (p_hold_seconds[w.i] is null or p_hold_seconds[w.i] between 1 and p.max_hold_seconds)
    and (p_quantities[w.i] = 1 or p.allocation = 'in_order')
    and not exists (select from holds h where h.id = p_ids[w.i])
    and not exists (
      select from holds h where h.buyer_id = p_buyers[w.i] and h.idempotency_key = p_keys[w.i]);

  if v_limited <> '{}' then
    foreach v_i in array v_limited loop
      if p_buyers[v_i] = any (v_buyers) or not pg_try_advisory_xact_lock(buyer_lock(p_buyers[v_i])) then
        v_plain := array_remove(v_plain, v_i);
      else
        v_buyers := v_buyers || p_buyers[v_i];
      end if;
    end loop;
    -- The count of a buyer's units is a statement of its own, after the buyer's lock (A12).
    select coalesce(array_agg(w.i order by w.i), '{}') into v_plain
    from unnest(v_plain) as w (i) join products p on p.sku = p_skus[w.i] collate "C"
    where p.per_buyer_limit is null
      or bought_units(p_buyers[w.i], p.sku) + p_quantities[w.i] <= p.per_buyer_limit;
  end if;
  if v_plain = '{}' then
    return to_jsonb(v_answers);
  end if;

  select array_agg(b.id order by b.sku, b.id) into v_bins
  from bins b where b.sku in (select p_skus[w.i] collate "C" from unnest(v_plain) as w (i));
  v_bins := coalesce(v_bins, '{}');
  perform lock_bins(v_bins, v_budget_ends, null);

  v_now := tahan_clock();
  select array_agg(s.sku), array_agg(s.sellable) into v_skus, v_left
  from (
    select b.sku, sum(greatest(b.available - b.safety_stock, 0)) as sellable
    from bins b where b.id = any (v_bins) group by b.sku
  ) s;
  foreach v_i in array v_plain loop
    v_at := array_position(v_skus, p_skus[v_i]);
    if v_now >= p_deadlines[v_i] then
      v_answers[v_i] := jsonb_build_object('outcome', 'CLAIM_TOO_LATE');
    elsif v_left[v_at] >= p_quantities[v_i] then
      v_left[v_at] := v_left[v_at] - p_quantities[v_i];
      v_granted := v_granted || v_i;
    else
      if not v_overdue ? p_skus[v_i] then
        v_overdue := v_overdue || jsonb_build_object(p_skus[v_i],
          cardinality(overdue_holds(array[p_skus[v_i]], null, null, v_now, 1)) > 0);
      end if;
      -- Units of overdue holds are for the claim that takes them back itself (R07).
      if not (v_overdue ->> p_skus[v_i])::boolean then
        v_refused := v_refused || v_i;
        v_answers[v_i] := jsonb_build_object('outcome', 'INSUFFICIENT_STOCK', 'shortfalls',
          jsonb_build_array(jsonb_build_object('sku', p_skus[v_i], 'requested', p_quantities[v_i],
            'available', coalesce(v_left[v_at], 0))));
      end if;
    end if;
  end loop;

  if v_refused <> '{}' then
    insert into holds (id, buyer_id, idempotency_key, request_hash, status, reason, refusal, metadata, created_at, closed_at)
    select p_ids[w.i], p_buyers[w.i], p_keys[w.i], p_hashes[w.i], 'REJECTED', 'INSUFFICIENT_STOCK', v_answers[w.i],
      p_metadata -> w.i - 1, v_now, v_now
    from unnest(v_refused) as w (i);
  end if;
  if v_granted <> '{}' then
    perform grant_claims(v_granted, p_ids, p_buyers, p_keys, p_hashes, p_skus, p_quantities, p_hold_seconds,
      p_orders, p_metadata, v_bins, v_now);
  end if;
  for v_claim in
    select w.i, h.id, h.expires_at from unnest(v_granted) as w (i) join holds h on h.id = p_ids[w.i]
  loop
    v_answers[v_claim.i] := jsonb_build_object('outcome', 'HELD', 'holdId', v_claim.id,
      'expiresAt', instant(v_claim.expires_at), 'remainingMs', ms_until(v_claim.expires_at, tahan_clock()));
  end loop;
  return to_jsonb(v_answers);
exception
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

-- Writes the granted claims of a batch: holds, lines, orders, and their units out of the locked bins,
-- each bin's movements one after the other. The caller has seen that they fit.
create or replace function tahan.grant_claims(
  p_granted integer[], p_ids uuid[], p_buyers text[], p_keys text[], p_hashes text[], p_skus text[],
  p_quantities integer[], p_hold_seconds integer[], p_orders boolean[], p_metadata jsonb, p_bins bigint[],
  p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_wanted bigint;
  v_taken bigint;
begin
  insert into tahan.holds (id, buyer_id, idempotency_key, request_hash, status, expires_at, late_payment, metadata, created_at)
  select p_ids[w.i], p_buyers[w.i], p_keys[w.i], p_hashes[w.i], 'HELD',
    p_now + coalesce(p_hold_seconds[w.i], p.hold_seconds) * interval '1 second', p.late_payment,
    p_metadata -> w.i - 1, p_now
  from unnest(p_granted) as w (i) join tahan.products p on p.sku = p_skus[w.i] collate "C";
  insert into tahan.hold_lines (hold_id, sku, quantity, unit_price_minor, open_until)
  select p_ids[w.i], p.sku, p_quantities[w.i], p.price_minor,
    p_now + coalesce(p_hold_seconds[w.i], p.hold_seconds) * interval '1 second'
  from unnest(p_granted) as w (i) join tahan.products p on p.sku = p_skus[w.i] collate "C";
  if true = any (p_orders) then
    insert into tahan.orders (hold_id, order_number, currency, total_minor, placed_at)
    select p_ids[w.i], tahan.new_order_number(), p.currency, p.price_minor * p_quantities[w.i], p_now
    from unnest(p_granted) as w (i) join tahan.products p on p.sku = p_skus[w.i] collate "C"
    where p_orders[w.i];
  end if;

  -- The claims of a product in a row, and its bins in a row: where the two overlap, units are taken.
  with claims as (
    select p_ids[w.i] as id, w.i, p_buyers[w.i] as buyer_id, p_skus[w.i] as sku, p_quantities[w.i] as quantity,
      sum(p_quantities[w.i]) over (partition by p_skus[w.i] order by w.i) as ends
    from unnest(p_granted) as w (i)
  ), places as (
    select b.*, greatest(b.available - b.safety_stock, 0) as sellable,
      sum(greatest(b.available - b.safety_stock, 0)) over (partition by b.sku order by b.id) as ends
    from tahan.bins b where b.id = any (p_bins)
  ), parts as (
    select c.id as hold_id, c.i, c.buyer_id, b.id as bin_id, b.sku, b.version, b.available, b.held, b.sold,
      (least(c.ends, b.ends) - greatest(c.ends - c.quantity, b.ends - b.sellable))::integer as units
    from claims c join places b on b.sku = c.sku collate "C"
      and c.ends - c.quantity < b.ends and b.ends - b.sellable < c.ends
  ), steps as (
    select p.*, row_number() over w as step, (sum(p.units) over w)::integer as taken
    from parts p window w as (partition by p.bin_id order by p.i)
  ), changed as (
    update tahan.bins b
    set available = b.available - s.units, held = b.held + s.units, version = b.version + s.steps, updated_at = p_now
    from (select p.bin_id, sum(p.units)::integer as units, count(*) as steps from parts p group by p.bin_id) s
    where b.id = s.bin_id
  ), allocated as (
    insert into tahan.allocations (hold_id, bin_id, quantity)
    select s.hold_id, s.bin_id, s.units from steps s
  ), moved as (
    insert into tahan.movements (
      bin_id, bin_version, sku, hold_id, type, quantity, from_available, from_held, from_sold,
      to_available, to_held, to_sold, reason, actor, created_at)
    select s.bin_id, s.version + s.step, s.sku, s.hold_id, 'reserve', s.units,
      s.available - s.taken + s.units, s.held + s.taken - s.units, s.sold,
      s.available - s.taken, s.held + s.taken, s.sold, 'checkout', 'buyer ' || s.buyer_id, p_now
    from steps s
  )
  select (select sum(c.quantity) from claims c), (select sum(s.units) from steps s) into v_wanted, v_taken;
  if v_wanted is distinct from v_taken then
    raise exception '% units granted, % taken', v_wanted, v_taken using errcode = 'TH903';
  end if;
end
$$;
