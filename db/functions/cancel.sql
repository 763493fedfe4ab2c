-- cancel: closes a HELD hold before or after its end and gives its units back (R09, R35).
create or replace function tahan.cancel(
  p_hold_id uuid, p_reason text, p_actor text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'HOLD';
  v_hold holds;
  v_pending jsonb;
begin
  perform require_read_committed();
  perform lock_holds(array[p_hold_id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = p_hold_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  if v_hold.status <> 'HELD' then
    return jsonb_build_object('outcome', 'ALREADY', 'status', v_hold.status);
  end if;
  v_pending := pending_payment(p_hold_id);
  if v_pending is not null then
    return jsonb_build_object('outcome', 'PAYMENT_PENDING', 'payment', v_pending);
  end if;
  v_waiting_for := 'STOCK';
  perform lock_bins(bins_of_hold(p_hold_id), v_budget_ends, null);
  perform give_back(p_hold_id, 'CANCELLED', p_reason, p_actor, tahan_clock());
  return jsonb_build_object('outcome', 'CANCELLED');
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;
