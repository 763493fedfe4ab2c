-- record_payment: stores what a payment service reported and decides, once, whether the money came in
-- time: the clock as this call begins is before the hold's end, and the hold, read under its lock, is
-- still HELD (which means that nothing was given away, however long the wait). A cancel that waits for
-- a bin holds the hold's row: reading the clock after the lock would make a punctual payment late (A5).
create or replace function tahan.record_payment(
  p_provider text, p_payment_id text, p_event_id text, p_status text, p_hold_id uuid,
  p_order_number text, p_amount_minor bigint, p_currency text, p_payload json,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_began timestamptz := tahan_clock();
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_hold holds;
  v_payment payments;
  v_outcome text := 'RECORDED';
begin
  perform require_read_committed();
  select h.* into v_hold from holds h
  where h.id = coalesce(p_hold_id, (select o.hold_id from orders o where o.order_number = p_order_number));
  if not found then
    perform keep_event(p_provider, p_event_id, p_payment_id, null, p_status, p_payload, v_began);
    return jsonb_build_object('outcome', 'UNMATCHED');
  end if;
  perform lock_holds(array[v_hold.id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = v_hold.id;
  perform keep_event(p_provider, p_event_id, p_payment_id, v_hold.id, p_status, p_payload, v_began);

  insert into payments (provider, payment_id, hold_id, amount_minor, currency, status)
  values (p_provider, p_payment_id, v_hold.id, p_amount_minor, p_currency, 'failed')
  on conflict on constraint payments_once do nothing;
  if not found then
    v_outcome := 'DUPLICATE';
  end if;
  select p.* into v_payment from payments p
  where p.provider = p_provider and p.payment_id = p_payment_id;
  if v_payment.hold_id <> v_hold.id then
    return jsonb_build_object('outcome', 'OTHER_HOLD');
  end if;

  -- A payment begins as one that has not succeeded; success and refund are the only steps up. A refund may
  -- come before the success: how much of the money is still here, only the success tells.
  if p_status = 'succeeded' and (v_payment.status = 'failed'
    or v_payment.status = 'refunded' and v_payment.received_at is null and p_amount_minor > v_payment.amount_minor) then
    v_outcome := 'RECORDED';
    v_payment.status := 'succeeded';
    v_payment.amount_minor := p_amount_minor;
    v_payment.currency := p_currency;
    v_payment.received_at := v_began;
    v_payment.in_time := v_hold.status = 'HELD' and v_began < v_hold.expires_at;
    v_payment.settlement := null;
    v_payment.settlement_reason := null;
    if does_not_fit(v_hold.id, p_amount_minor, p_currency) then
      v_payment.settlement := 'REFUND_DUE';
      v_payment.settlement_reason := 'MISMATCH';
    elsif v_hold.status = 'CONFIRMED' then
      v_payment.settlement := 'REFUND_DUE';
      v_payment.settlement_reason := 'SURPLUS';
    elsif v_hold.status in ('CANCELLED', 'REJECTED') then
      v_payment.settlement := 'REFUND_DUE';
      v_payment.settlement_reason := 'LATE';
    elsif v_hold.status = 'EXPIRED' and v_hold.late_payment <> 'accept_if_available' then
      v_payment.settlement := late_settlement(v_hold.late_payment);
      v_payment.settlement_reason := 'LATE';
    end if;
  -- A refund of a part is kept as an event and changes nothing: the rest of the money is still here.
  elsif p_status = 'refunded' and p_amount_minor >= v_payment.amount_minor
    and (v_payment.status <> 'refunded' or v_payment.received_at is null and p_amount_minor > v_payment.amount_minor) then
    v_outcome := 'RECORDED';
    v_payment.status := 'refunded';
    v_payment.amount_minor := case when v_payment.received_at is null then p_amount_minor else v_payment.amount_minor end;
    -- The money is back, but a confirmed hold keeps its units until an operator has looked; not when
    -- it is we who sent all of it back, for returns: there is nothing to look at. (Of nothing we send nothing.)
    if v_payment.settlement in ('APPLIED', 'ACCEPTED_LATE') then
      if sent_for_returns(p_provider, p_payment_id) < greatest(v_payment.amount_minor, 1) then
        v_payment.settlement_reason := 'RETURNED';
        v_payment.settlement := 'NEEDS_REVIEW';
      end if;
    else
      v_payment.settlement_reason := coalesce(v_payment.settlement_reason, 'RETURNED');
      v_payment.settlement := 'REFUNDED';
    end if;
  end if;
  if v_outcome = 'RECORDED' then
    update payments p
    set status = v_payment.status, amount_minor = v_payment.amount_minor, currency = v_payment.currency,
      received_at = v_payment.received_at, in_time = v_payment.in_time,
      settlement = v_payment.settlement, settlement_reason = v_payment.settlement_reason
    where p.provider = p_provider and p.payment_id = p_payment_id;
  end if;
  return jsonb_build_object(
    'outcome', v_outcome, 'holdId', v_hold.id, 'status', v_payment.status, 'inTime', v_payment.in_time,
    'settlement', v_payment.settlement, 'settlementReason', v_payment.settlement_reason);
exception
  when lock_not_available then perform raise_busy('HOLD');
end
$$;

-- The event as it came, counted when it comes again. What was unmatched is matched once the hold exists (B09).
create or replace function tahan.keep_event(
  p_provider text, p_event_id text, p_payment_id text, p_hold_id uuid, p_type text, p_payload json,
  p_now timestamptz)
returns void language plpgsql volatile as $$
begin
  if p_event_id is null then
    return;
  end if;
  insert into tahan.payment_events as e (provider, event_id, payment_id, hold_id, type, payload, received_at)
  values (p_provider, p_event_id, p_payment_id, p_hold_id, p_type, p_payload, p_now)
  on conflict on constraint payment_events_once do update
  set deliveries = e.deliveries + 1, hold_id = coalesce(e.hold_id, excluded.hold_id);
end
$$;

-- store_event: keeps an event of a type that nobody acts on, as it came.
create or replace function tahan.store_event(
  p_provider text, p_event_id text, p_payment_id text, p_type text, p_payload json)
returns void language sql volatile security definer set search_path = tahan, pg_temp as $$
  select keep_event(p_provider, p_event_id, p_payment_id, null, p_type, p_payload, tahan_clock())
$$;
