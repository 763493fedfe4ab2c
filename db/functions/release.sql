-- release: gives some lines or some units of a HELD hold back; the rest stays held until the same end
-- (B13). It looks at what is still held, never at what was asked. Of several bins the one allocated last,
-- with the highest id, gives back first: a release undoes the claim backwards. The last unit closes the
-- hold like a cancel. An order's total follows in the same transaction, so that a payment must match what
-- is left; a payment that came in time is in the way until it is confirmed. A request id is answered once
-- and kept; a refusal changes nothing and is not kept.
create or replace function tahan.release(
  p_hold_id uuid, p_lines jsonb, p_reason text, p_actor text, p_request_id text,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'HOLD';
  v_lines jsonb := merged_lines(p_lines);
  v_request jsonb := jsonb_build_object('release', v_lines, 'reason', p_reason);
  v_hold holds;
  v_known requests;
  v_pending jsonb;
  v_now timestamptz;
  v_faults jsonb;
  v_all boolean;
  v_bins bigint[];
  v_parts integer[];
  v_answer jsonb;
begin
  perform require_read_committed();
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  perform lock_holds(array[p_hold_id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = p_hold_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  select r.* into v_known from requests r
  where r.scope = 'hold ' || p_hold_id and r.request_id = p_request_id;
  if found then
    return case when v_known.request = v_request then v_known.answer
      else jsonb_build_object('outcome', 'KEY_REUSED') end;
  end if;
  if v_hold.status <> 'HELD' then
    return jsonb_build_object('outcome', 'ALREADY', 'status', v_hold.status);
  end if;
  v_pending := pending_payment(p_hold_id);
  if v_pending is not null then
    return jsonb_build_object('outcome', 'PAYMENT_PENDING', 'payment', v_pending);
  end if;
  v_now := tahan_clock();
  if v_hold.expires_at <= v_now then
    return jsonb_build_object('outcome', 'EXPIRED');
  end if;
  -- Under the hold's lock: what was held a moment before may be released by now.
  select jsonb_agg(jsonb_build_object('sku', w.sku, 'requested', w.quantity, 'held', coalesce(l.quantity, 0)) order by w.sku)
  into v_faults
  from asked_lines(v_lines) w left join hold_lines l on l.hold_id = p_hold_id and l.sku = w.sku
  where w.quantity > coalesce(l.quantity, 0);
  if v_faults is not null then
    return jsonb_build_object('outcome', 'INVALID_QUANTITY', 'lines', v_faults);
  end if;
  v_all := not exists (
    select from hold_lines l left join asked_lines(v_lines) w on w.sku = l.sku
    where l.hold_id = p_hold_id and l.quantity > coalesce(w.quantity, 0));

  select p.bins, p.parts into v_bins, v_parts from parts_of(p_hold_id, v_lines, false) p;
  v_waiting_for := 'STOCK';
  perform lock_bins(v_bins, v_budget_ends, null);
  v_now := greatest(v_now, tahan_clock());
  if v_all then
    perform give_back(p_hold_id, 'CANCELLED', p_reason, p_actor, v_now);
    v_answer := jsonb_build_object('outcome', 'RELEASED', 'status', 'CANCELLED', 'left', '[]'::jsonb);
  else
    for i in 1 .. cardinality(v_bins) loop
      perform move_units(v_bins[i], 'release_reservation', v_parts[i], p_hold_id, p_request_id,
        p_reason, p_actor, '{}', v_now);
      delete from allocations a
      where a.hold_id = p_hold_id and a.bin_id = v_bins[i] and a.quantity = v_parts[i];
      update allocations a set quantity = a.quantity - v_parts[i]
      where a.hold_id = p_hold_id and a.bin_id = v_bins[i];
    end loop;
    update hold_lines l
    set quantity = l.quantity - w.quantity, released = l.released + w.quantity,
      open_until = case when l.quantity > w.quantity then l.open_until end
    from asked_lines(v_lines) w
    where l.hold_id = p_hold_id and l.sku = w.sku;
    update orders o set total_minor = (
      select sum(l.unit_price_minor * l.quantity) from hold_lines l where l.hold_id = p_hold_id)
    where o.hold_id = p_hold_id;
    select jsonb_build_object('outcome', 'RELEASED', 'status', 'HELD',
      'left', jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity) order by l.sku))
    into v_answer
    from hold_lines l where l.hold_id = p_hold_id and l.quantity > 0;
  end if;
  insert into requests (scope, request_id, request, answer, created_at)
  values ('hold ' || p_hold_id, p_request_id, v_request, v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;

-- Lines as they are compared and kept: one per product, in the order of the products. Every quantity is
-- positive: 6 and -5 are not one unit (F11).
create or replace function tahan.merged_lines(p_lines jsonb) returns jsonb
language plpgsql immutable as $$
declare
  v_lines jsonb;
  v_smallest integer;
  v_missing boolean;
begin
  select jsonb_agg(jsonb_build_object('sku', m.sku, 'quantity', m.quantity) order by m.sku),
    min(m.smallest), bool_or(m.missing)
  into v_lines, v_smallest, v_missing
  from (
    select l.sku collate "C" as sku, sum(l.quantity) as quantity, min(l.quantity) as smallest,
      bool_or(l.quantity is null or l.sku is null) as missing
    from jsonb_to_recordset(p_lines) as l (sku text, quantity integer)
    group by 1
  ) m;
  if v_lines is null or v_missing or v_smallest < 1 then
    raise exception 'these are no lines: %', left(p_lines::text, 200) using errcode = '22023';
  end if;
  return v_lines;
end
$$;

create or replace function tahan.asked_lines(p_lines jsonb) returns table (sku text, quantity bigint)
language sql immutable as $$
  select l.sku collate "C", l.quantity from jsonb_to_recordset(p_lines) as l (sku text, quantity bigint)
$$;

-- From which bins so many units of each product come, in lock order: of what is still there of each
-- allocation, the last allocated first. With p_sold, of what was sold and is not on the shelf again.
create or replace function tahan.parts_of(
  p_hold_id uuid, p_lines jsonb, p_sold boolean, out bins bigint[], out parts integer[])
language sql volatile as $$
  select coalesce(array_agg(c.bin_id order by c.sku, c.bin_id), '{}'),
    coalesce(array_agg(least(c.units, c.wanted - c.before)::integer order by c.sku, c.bin_id), '{}')
  from (
    select b.sku, a.bin_id, a.units, w.quantity as wanted,
      coalesce(sum(a.units) over (
        partition by b.sku order by a.bin_id desc rows between unbounded preceding and 1 preceding), 0) as before
    from (
      select x.bin_id, x.quantity - case when p_sold then x.returned else 0 end as units
      from tahan.allocations x where x.hold_id = p_hold_id) a
    join tahan.bins b on b.id = a.bin_id
    join tahan.asked_lines(p_lines) w on w.sku = b.sku
  ) c
  where c.units > 0 and c.wanted > c.before
$$;
