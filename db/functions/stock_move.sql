-- Moves units from one bin of a product to another: two adjustments under one request id, in one
-- transaction. Both bins are locked in id order, whichever way the units go: two moves in opposite
-- direction would else wait for one another (B02).
create or replace function tahan.move_stock(
  p_sku text, p_bin text, p_to text, p_quantity integer, p_reason text, p_actor text,
  p_request_id text, p_reference text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_scope text := 'bin ' || p_sku || ' ' || p_bin;
  v_request jsonb := jsonb_build_object('type', 'move', 'to', p_to, 'quantity', p_quantity,
    'reason', p_reason, 'reference', p_reference);
  v_reference jsonb := case when p_reference is null then '{}' else jsonb_build_object('reference', p_reference) end;
  v_from bins;
  v_to bins;
  v_locked bigint[];
  v_known requests;
  v_now timestamptz;
  v_answer jsonb;
begin
  perform require_read_committed();
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  if p_quantity is null or p_quantity < 1 then
    return jsonb_build_object('outcome', 'INVALID_QUANTITY');
  end if;
  if not exists (select from products p where p.sku = p_sku collate "C") then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'what', 'product');
  end if;
  select b.* into v_from from bins b where b.sku = p_sku collate "C" and b.code = p_bin collate "C";
  if not found then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'what', 'bin', 'bin', p_bin);
  end if;
  select b.* into v_to from bins b where b.sku = p_sku collate "C" and b.code = p_to collate "C";
  if not found then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'what', 'bin', 'bin', p_to);
  end if;
  if v_from.id = v_to.id then
    return jsonb_build_object('outcome', 'SAME_BIN');
  end if;
  v_locked := array[least(v_from.id, v_to.id), greatest(v_from.id, v_to.id)];
  perform lock_bins(v_locked, v_budget_ends, null);
  select b.* into v_from from bins b where b.id = v_from.id;
  select b.* into v_to from bins b where b.id = v_to.id;
  select r.* into v_known from requests r where r.scope = v_scope and r.request_id = p_request_id;
  if found then
    return case when v_known.request = v_request then v_known.answer
      else jsonb_build_object('outcome', 'KEY_REUSED') end;
  end if;

  v_now := tahan_clock();
  if v_from.available < p_quantity then
    v_answer := jsonb_build_object('outcome', 'INSUFFICIENT_STOCK', 'available', v_from.available);
  elsif v_to.total + p_quantity > 2000000000 then
    v_answer := jsonb_build_object('outcome', 'INVALID_QUANTITY');
  else
    perform move_units(v_from.id, 'manual_adjustment', p_quantity, null, p_request_id, p_reason, p_actor,
      v_reference || jsonb_build_object('moved_to', p_to), v_now, -1);
    perform move_units(v_to.id, 'manual_adjustment', p_quantity, null, p_request_id, p_reason, p_actor,
      v_reference || jsonb_build_object('moved_from', p_bin), v_now, 1);
    v_answer := jsonb_build_object('outcome', 'DONE',
      'from', bin_counts(v_from.id), 'to', bin_counts(v_to.id));
  end if;
  insert into requests (scope, request_id, request, answer, created_at)
  values (v_scope, p_request_id, v_request, v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

-- A bin as the answer to a change shows it.
create or replace function tahan.bin_counts(p_bin_id bigint) returns jsonb
language sql volatile as $$
  select jsonb_build_object('bin', b.code, 'version', b.version, 'safetyStock', b.safety_stock,
    'counts', jsonb_build_object('available', b.available, 'held', b.held, 'sold', b.sold))
  from tahan.bins b where b.id = p_bin_id
$$;
