-- The three steps of a refund that a settlement or a return asks for, each under the hold's lock like everything that a payment decides.
-- The row stands before the first call; begin_refund marks each call before it is made, so that a call
-- whose answer was lost is known to have begun (F18).

-- request_refund: makes the row of what is to go back when the settlement says REFUND_DUE, or finds it.
-- A refund that the provider refused may be asked for again, with the same key.
create or replace function tahan.request_refund(
  p_provider text, p_payment_id text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_payment payments;
  v_refund refunds;
  v_left bigint;
  v_now timestamptz;
begin
  perform require_read_committed();
  v_payment := lock_payment(p_provider, p_payment_id, p_budget_ms);
  if v_payment.provider is null then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  if v_payment.settlement is distinct from 'REFUND_DUE' then
    return jsonb_build_object('outcome', 'NOT_DUE', 'settlement', v_payment.settlement);
  end if;
  v_now := tahan_clock();
  select r.* into v_refund from refunds r
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = 'settlement';
  if found then
    update refunds r set state = 'REQUESTED', updated_at = v_now
    where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = 'settlement'
      and r.state = 'REFUSED';
    return jsonb_build_object('outcome', 'REQUESTED', 'cause', 'settlement', 'amountMinor', v_refund.amount_minor,
      'currency', v_payment.currency);
  end if;
  v_left := left_of_payment(v_payment);
  if v_left <= 0 then
    -- A payment of nothing, or one that returns have given back before: no call, and it is over.
    update payments p set settlement = 'REFUNDED' where p.provider = p_provider and p.payment_id = p_payment_id;
    return jsonb_build_object('outcome', 'NOT_DUE', 'settlement', 'REFUNDED');
  end if;
  insert into refunds (provider, payment_id, cause, amount_minor, key, created_at, updated_at)
  values (p_provider, p_payment_id, 'settlement', v_left, refund_key(p_provider, p_payment_id, 'settlement'), v_now, v_now);
  return jsonb_build_object('outcome', 'REQUESTED', 'cause', 'settlement', 'amountMinor', v_left,
    'currency', v_payment.currency);
exception
  when lock_not_available then perform raise_busy('HOLD');
end
$$;

-- begin_refund: says whether the provider is to be called now, and whether an earlier call may have
-- reached it. When the provider has reported meanwhile that the money is back, nothing is called.
create or replace function tahan.begin_refund(
  p_provider text, p_payment_id text, p_cause text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_payment payments;
  v_refund refunds;
  v_now timestamptz;
begin
  perform require_read_committed();
  v_payment := lock_payment(p_provider, p_payment_id, p_budget_ms);
  select r.* into v_refund from refunds r
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  v_now := tahan_clock();
  if p_cause = 'settlement' and v_refund.state in ('REQUESTED', 'CALLED') and v_payment.settlement is distinct from 'REFUND_DUE' then
    v_refund.state := case when v_refund.calls > 0 then 'EXECUTED' else 'NOT_NEEDED' end;
    update refunds r set state = v_refund.state, detail = 'reported by the provider', updated_at = v_now
    where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  end if;
  if p_cause <> 'settlement' and v_refund.state = 'REQUESTED' and v_refund.calls = 0
    and v_payment.settlement in ('NEEDS_REVIEW', 'REFUNDED') then
    v_refund.state := 'NOT_NEEDED';
    update refunds r set state = v_refund.state, detail = 'reported by the provider', updated_at = v_now
    where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  end if;
  if v_refund.state not in ('REQUESTED', 'CALLED') then
    return jsonb_build_object('outcome', 'DONE', 'state', v_refund.state);
  end if;
  update refunds r
  set state = 'CALLED', calls = r.calls + 1, first_called_at = coalesce(r.first_called_at, v_now), updated_at = v_now
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  return jsonb_build_object('outcome', 'CALL', 'paymentId', p_payment_id, 'holdId', v_payment.hold_id,
    'amountMinor', v_refund.amount_minor, 'currency', v_payment.currency, 'key', v_refund.key,
    'reason', case when p_cause = 'settlement' then v_payment.settlement_reason else 'RETURN' end,
    'calledBefore', v_refund.calls > 0);
exception
  when lock_not_available then perform raise_busy('HOLD');
end
$$;

-- finish_refund: what the provider said. EXECUTED ends the settlement; REFUSED hands it to an operator.
create or replace function tahan.finish_refund(
  p_provider text, p_payment_id text, p_cause text, p_state text, p_provider_ref text, p_detail text,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_payment payments;
  v_refund refunds;
begin
  perform require_read_committed();
  if p_state not in ('EXECUTED', 'REFUSED') then
    raise exception 'a refund ends as EXECUTED or REFUSED, not as %', p_state using errcode = '22023';
  end if;
  v_payment := lock_payment(p_provider, p_payment_id, p_budget_ms);
  select r.* into v_refund from refunds r
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  if v_refund.state <> 'CALLED' then
    return jsonb_build_object('outcome', 'ALREADY', 'state', v_refund.state);
  end if;
  update refunds r
  set state = p_state, provider_ref = p_provider_ref, detail = p_detail, updated_at = tahan_clock()
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause = p_cause;
  if p_cause = 'settlement' then
    update payments p
    set settlement = case when p_state = 'EXECUTED' then 'REFUNDED' else 'NEEDS_REVIEW' end
    where p.provider = p_provider and p.payment_id = p_payment_id and p.settlement = 'REFUND_DUE';
  end if;
  return jsonb_build_object('outcome', 'DONE', 'state', p_state);
exception
  when lock_not_available then perform raise_busy('HOLD');
end
$$;

-- The payment under its hold's lock; a row of nulls when there is none.
create or replace function tahan.lock_payment(p_provider text, p_payment_id text, p_budget_ms integer)
returns tahan.payments language plpgsql volatile as $$
declare
  v_hold uuid;
  v_payment tahan.payments;
begin
  select p.hold_id into v_hold from tahan.payments p where p.provider = p_provider and p.payment_id = p_payment_id;
  perform tahan.lock_holds(array[v_hold], clock_timestamp() + p_budget_ms * interval '1 millisecond', null);
  select p.* into v_payment from tahan.payments p where p.provider = p_provider and p.payment_id = p_payment_id;
  return v_payment;
end
$$;

-- What of a payment is not on its way back already.
create or replace function tahan.left_of_payment(p_payment tahan.payments) returns bigint
language sql volatile as $$
  select p_payment.amount_minor - coalesce(sum(r.amount_minor), 0)::bigint from tahan.refunds r
  where r.provider = p_payment.provider and r.payment_id = p_payment.payment_id
    and r.state not in ('REFUSED', 'NOT_NEEDED')
$$;

-- What the provider was asked to send back for returns, done or begun.
create or replace function tahan.sent_for_returns(p_provider text, p_payment_id text) returns bigint
language sql volatile as $$
  select coalesce(sum(r.amount_minor), 0)::bigint from tahan.refunds r
  where r.provider = p_provider and r.payment_id = p_payment_id and r.cause <> 'settlement'
    and r.state in ('CALLED', 'EXECUTED')
$$;

create or replace function tahan.refund_key(p_provider text, p_payment_id text, p_cause text) returns text
language sql immutable as $$
  select 'tahan-' || encode(sha256(convert_to(jsonb_build_array(p_provider, p_payment_id, p_cause)::text, 'UTF8')), 'hex')
$$;
