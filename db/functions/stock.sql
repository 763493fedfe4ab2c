-- adjust, restock and count: an operator's changes of what is available, each with a reason, an actor
-- and a request id (R37). The request is looked for under the bin's lock: a repeat answers what the
-- first one answered and changes nothing (A7).
create or replace function tahan.adjust(
  p_sku text, p_bin text, p_delta integer, p_reason text, p_actor text, p_request_id text,
  p_reference text, p_budget_ms integer default 15000)
returns jsonb language sql volatile security definer set search_path = tahan, pg_temp as $$
  select change_stock('manual_adjustment', p_sku, p_bin, p_delta, null, p_reason, p_actor, p_request_id,
    p_reference, p_budget_ms)
$$;

-- Sets what is physically there, available and held, from the number that the counter expected to the
-- one that was counted. Claims, cancels and expiries don't change that sum, so a hot bin can be counted
-- while it sells; whatever does change it makes the count stale, and it is refused (B20).
create or replace function tahan.count_stock(
  p_sku text, p_bin text, p_counted integer, p_expected integer, p_reason text, p_actor text,
  p_request_id text, p_reference text, p_budget_ms integer default 15000)
returns jsonb language sql volatile security definer set search_path = tahan, pg_temp as $$
  select case
    when p_counted between 0 and 2000000000 and p_expected between 0 and 2000000000 then
      change_stock('manual_adjustment', p_sku, p_bin, p_counted - p_expected, p_expected, p_reason, p_actor,
        p_request_id, p_reference, p_budget_ms)
    else jsonb_build_object('outcome', 'INVALID_QUANTITY') end
$$;

create or replace function tahan.restock(
  p_sku text, p_bin text, p_quantity integer, p_reason text, p_actor text, p_request_id text,
  p_reference text, p_budget_ms integer default 15000)
returns jsonb language sql volatile security definer set search_path = tahan, pg_temp as $$
  select case when p_quantity < 1 then jsonb_build_object('outcome', 'INVALID_QUANTITY')
    else change_stock('restock', p_sku, p_bin, p_quantity, null, p_reason, p_actor, p_request_id,
      p_reference, p_budget_ms) end
$$;

-- The form it had before a count could say what it expected.
drop function if exists tahan.change_stock(text, text, text, integer, text, text, text, text, integer);
create or replace function tahan.change_stock(
  p_type text, p_sku text, p_bin text, p_delta integer, p_expected integer, p_reason text, p_actor text,
  p_request_id text, p_reference text, p_budget_ms integer)
returns jsonb language plpgsql volatile as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_scope text := 'bin ' || p_sku || ' ' || p_bin;
  v_request jsonb := jsonb_build_object('type', p_type, 'delta', p_delta, 'reason', p_reason, 'reference', p_reference)
    || case when p_expected is null then '{}' else jsonb_build_object('expected', p_expected) end;
  v_bin tahan.bins;
  v_known tahan.requests;
  v_now timestamptz;
  v_answer jsonb;
begin
  perform tahan.require_read_committed();
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  if p_delta = 0 and p_expected is null then
    return jsonb_build_object('outcome', 'INVALID_QUANTITY');
  end if;
  select b.* into v_bin from tahan.bins b where b.sku = p_sku collate "C" and b.code = p_bin collate "C";
  if not found then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'what',
      case when exists (select from tahan.products p where p.sku = p_sku collate "C") then 'bin' else 'product' end);
  end if;
  perform tahan.lock_bins(array[v_bin.id], v_budget_ends, null);
  select b.* into v_bin from tahan.bins b where b.id = v_bin.id;
  select r.* into v_known from tahan.requests r where r.scope = v_scope and r.request_id = p_request_id;
  if found then
    return case when v_known.request = v_request then v_known.answer
      else jsonb_build_object('outcome', 'KEY_REUSED') end;
  end if;

  v_now := tahan.tahan_clock();
  if v_bin.available::bigint + v_bin.held <> p_expected then
    v_answer := jsonb_build_object('outcome', 'STOCK_CHANGED',
      'counts', jsonb_build_object('available', v_bin.available, 'held', v_bin.held, 'sold', v_bin.sold));
  elsif v_bin.total + p_delta > 2000000000 then
    v_answer := jsonb_build_object('outcome', 'INVALID_QUANTITY');
  elsif v_bin.available::bigint + p_delta < 0 then
    v_answer := jsonb_build_object('outcome', 'INSUFFICIENT_STOCK', 'available', v_bin.available);
  else
    -- Counted as expected: nothing has moved.
    if p_delta <> 0 then
      perform tahan.move_units(v_bin.id, p_type, abs(p_delta), null, p_request_id, p_reason, p_actor,
        case when p_reference is null then '{}' else jsonb_build_object('reference', p_reference) end,
        v_now, sign(p_delta)::integer);
    end if;
    select jsonb_build_object('outcome', 'DONE', 'version', b.version, 'safetyStock', b.safety_stock,
      'counts', jsonb_build_object('available', b.available, 'held', b.held, 'sold', b.sold))
    into v_answer
    from tahan.bins b where b.id = v_bin.id;
  end if;
  insert into tahan.requests (scope, request_id, request, answer, created_at)
  values (v_scope, p_request_id, v_request, v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform tahan.raise_busy('STOCK');
end
$$;
