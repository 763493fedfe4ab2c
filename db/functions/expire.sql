-- expire: gives an overdue unpaid hold's units back, once (R06). Locks the hold, then looks; then its
-- bins. Nothing can change meanwhile: whoever pays, cancels or reclaims it waits for the hold's row.
create or replace function tahan.expire(p_hold_id uuid, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'HOLD';
  v_hold holds;
  v_now timestamptz;
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
  v_now := tahan_clock();
  if v_hold.expires_at > v_now then
    return jsonb_build_object('outcome', 'NOT_DUE', 'remainingMs', ms_until(v_hold.expires_at, v_now));
  end if;
  v_waiting_for := 'STOCK';
  perform lock_bins(bins_of_hold(p_hold_id), v_budget_ends, null);
  perform give_back(p_hold_id, 'EXPIRED', 'payment window over', 'timer', greatest(v_now, tahan_clock()));
  return jsonb_build_object('outcome', 'EXPIRED');
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;

-- The code of a wait that the budget has ended, by what was waited for (R26). Nothing has changed.
create or replace function tahan.raise_busy(p_waiting_for text) returns void
language plpgsql volatile as $$
begin
  if p_waiting_for = 'HOLD' then
    raise exception 'this hold is locked by another change of itself' using errcode = 'TH002';
  end if;
  raise exception 'the stock is locked by someone else' using errcode = 'TH003';
end
$$;
