-- decide_payment: an operator's answer to NEEDS_REVIEW. Accepting claims the units again when the hold
-- has expired, and confirms it, in one transaction, under the same locks as a late payment's confirm;
-- what stock, limit or hold do not allow leaves the payment in review.
create or replace function tahan.decide_payment(
  p_provider text, p_payment_id text, p_decision text, p_reason text, p_actor text, p_request_id text,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'BUYER';
  v_scope text := 'payment ' || p_provider || ' ' || p_payment_id;
  v_request jsonb := jsonb_build_object('decision', p_decision, 'reason', p_reason, 'actor', p_actor);
  v_hold holds;
  v_payment payments;
  v_known requests;
  v_pending jsonb;
  v_over text[];
  v_answer jsonb;
  v_now timestamptz;
begin
  perform require_read_committed();
  if p_decision not in ('accept', 'refund') then
    raise exception 'a decision is accept or refund, not %', p_decision using errcode = '22023';
  end if;
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  select p.* into v_payment from payments p where p.provider = p_provider and p.payment_id = p_payment_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  select h.* into v_hold from holds h where h.id = v_payment.hold_id;
  if p_decision = 'accept' then
    perform wait_within(v_budget_ends, null);
    perform pg_advisory_xact_lock(buyer_lock(v_hold.buyer_id));
  end if;
  v_waiting_for := 'HOLD';
  perform lock_holds(array[v_hold.id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = v_hold.id;
  select p.* into v_payment from payments p where p.provider = p_provider and p.payment_id = p_payment_id;
  select r.* into v_known from requests r where r.scope = v_scope and r.request_id = p_request_id;
  if found then
    return case when v_known.request = v_request then v_known.answer
      else jsonb_build_object('outcome', 'KEY_REUSED') end;
  end if;
  if v_payment.settlement is distinct from 'NEEDS_REVIEW' then
    return jsonb_build_object('outcome', 'ALREADY', 'settlement', v_payment.settlement);
  end if;

  v_now := tahan_clock();
  if v_payment.status = 'refunded' then
    -- The money is back; the units of a confirmed hold come back by a return, not by this.
    v_answer := jsonb_build_object('outcome', 'REFUNDED');
    update payments p set settlement = 'REFUNDED' where p.provider = p_provider and p.payment_id = p_payment_id;
  elsif p_decision = 'refund' then
    v_answer := jsonb_build_object('outcome', 'REFUND_DUE');
    update payments p set settlement = 'REFUND_DUE', settlement_reason = 'REVIEWED'
    where p.provider = p_provider and p.payment_id = p_payment_id;
  else
    if does_not_fit(v_hold.id, v_payment.amount_minor, v_payment.currency) then
      return jsonb_build_object('outcome', 'MISMATCH');
    end if;
    if v_hold.status not in ('HELD', 'EXPIRED') then
      return jsonb_build_object('outcome', 'HOLD_CLOSED', 'status', v_hold.status);
    end if;
    v_pending := pending_payment(v_hold.id);
    if v_pending is not null then
      return jsonb_build_object('outcome', 'PAYMENT_PENDING', 'payment', v_pending);
    end if;
    v_waiting_for := 'STOCK';
    if v_hold.status = 'EXPIRED' then
      select over_limit(v_hold.buyer_id, array_agg(l.sku order by l.sku), array_agg(l.quantity order by l.sku))
      into v_over from hold_lines l where l.hold_id = v_hold.id and l.quantity > 0;
      if v_over is not null then
        return jsonb_build_object('outcome', 'BUYER_LIMIT', 'sku', v_over[1]);
      end if;
      if not take_again(v_hold, v_budget_ends) then
        return jsonb_build_object('outcome', 'INSUFFICIENT_STOCK');
      end if;
    else
      perform lock_bins(bins_of_hold(v_hold.id), v_budget_ends, null);
    end if;
    v_now := tahan_clock();
    perform sell(v_hold, v_payment, v_now);
    v_answer := jsonb_build_object('outcome', 'ACCEPTED_LATE');
  end if;
  update payments p set review = v_request || jsonb_build_object('at', instant(v_now))
  where p.provider = p_provider and p.payment_id = p_payment_id;
  insert into requests (scope, request_id, request, answer, created_at)
  values (v_scope, p_request_id, v_request, v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;
