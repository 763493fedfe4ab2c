-- extend: adds seconds to the end of a HELD hold that is not overdue; at most max_extensions times,
-- never past max_hold_seconds from its creation. A request id is answered once and kept: a lost
-- reply moved the end twice and used up both extensions (H8). While a rule counts open holds, the buyer's
-- lock comes first: a claim that found this hold overdue must not meet it open again.
create or replace function tahan.extend(
  p_hold_id uuid, p_seconds integer, p_request_id text, p_actor text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'BUYER';
  v_buyer text;
  v_hold holds;
  v_now timestamptz;
  v_known jsonb;
  v_asked integer;
  v_terms record;
  v_largest integer;
  v_answer jsonb;
begin
  perform require_read_committed();
  select h.buyer_id into v_buyer
  from holds h, buyer_rules r
  where h.id = p_hold_id and r.max_open_holds is not null;
  if v_buyer is not null then
    perform wait_within(v_budget_ends, null);
    perform pg_advisory_xact_lock(buyer_lock(v_buyer));
  end if;
  v_waiting_for := 'HOLD';
  perform lock_holds(array[p_hold_id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = p_hold_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  v_now := tahan_clock();
  select r.answer, (r.request ->> 'extend')::integer into v_known, v_asked from requests r
  where r.scope = 'hold ' || p_hold_id and r.request_id = p_request_id;
  -- The id of a release or a return of this hold is known too, and asked for no seconds.
  if v_known is not null and v_asked is distinct from p_seconds then
    return jsonb_build_object('outcome', 'KEY_REUSED');
  end if;
  if v_known is not null and (v_known ->> 'outcome' = 'LIMIT' or v_hold.status = 'HELD') then
    -- The end is what it is now; only the time left has to be counted anew.
    return case when v_known ->> 'outcome' = 'EXTENDED'
      then v_known || jsonb_build_object('expiresAt', instant(v_hold.expires_at),
        'remainingMs', ms_until(v_hold.expires_at, v_now))
      else v_known end;
  end if;
  if v_hold.status <> 'HELD' then
    return jsonb_build_object('outcome', 'ALREADY', 'status', v_hold.status);
  end if;
  if v_hold.expires_at <= v_now then
    return jsonb_build_object('outcome', 'EXPIRED');
  end if;

  select min(p.max_extensions) as max_extensions, min(p.max_hold_seconds) as max_hold_seconds into v_terms
  from hold_lines l join products p on p.sku = l.sku where l.hold_id = p_hold_id and l.quantity > 0;
  v_largest := case when v_hold.extensions >= v_terms.max_extensions then 0 else
    greatest(0, floor(extract(epoch from
      v_hold.created_at + v_terms.max_hold_seconds * interval '1 second' - v_hold.expires_at)))::integer end;
  if p_seconds not between 1 and v_largest then
    v_answer := jsonb_build_object('outcome', 'LIMIT', 'maxExtensions', v_terms.max_extensions,
      'largestSeconds', v_largest);
  else
    update holds h
    set expires_at = h.expires_at + p_seconds * interval '1 second', extensions = h.extensions + 1
    where h.id = p_hold_id
    returning h.* into v_hold;
    update hold_lines l set open_until = v_hold.expires_at where l.hold_id = p_hold_id and l.quantity > 0;
    v_answer := jsonb_build_object('outcome', 'EXTENDED', 'expiresAt', instant(v_hold.expires_at),
      'remainingMs', ms_until(v_hold.expires_at, v_now), 'extensions', v_hold.extensions);
  end if;
  insert into requests (scope, request_id, request, answer, created_at)
  values ('hold ' || p_hold_id, p_request_id,
    jsonb_build_object('extend', p_seconds, 'actor', p_actor), v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;
