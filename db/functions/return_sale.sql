-- return_sale: takes back units of a CONFIRMED hold, all or some, and makes the refund's row in the same
-- transaction (R09). With p_restock they become sellable again in exactly the bins they were sold from,
-- the last allocated first; without it they are gone for good: they stay counted as sold, since a bin's
-- sold units left the shelf, and hold_lines.returned alone says that they came back. Either way the
-- buyer's allowance comes back. Outcomes and what is refunded: db/returnSale.ts.
create or replace function tahan.return_sale(
  p_hold_id uuid, p_lines jsonb, p_reason text, p_actor text, p_request_id text, p_restock boolean,
  p_refund_minor bigint, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text := 'HOLD';
  v_cause text := 'return:' || p_request_id;
  v_lines jsonb := case when p_lines is not null then merged_lines(p_lines) end;
  v_request jsonb := jsonb_build_object('return', v_lines, 'reason', p_reason, 'restock', p_restock,
    'refundMinor', p_refund_minor);
  v_hold holds;
  v_known requests;
  v_payment payments;
  v_faults jsonb;
  v_left jsonb;
  v_due jsonb;
  v_refund jsonb;
  v_bins bigint[];
  v_parts integer[];
  v_now timestamptz;
  v_answer jsonb;
begin
  perform require_read_committed();
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  if p_refund_minor < 0 then
    raise exception 'a refund of %', p_refund_minor using errcode = '22023';
  end if;
  perform lock_holds(array[p_hold_id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = p_hold_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  select p.* into v_payment from payments p
  where p.provider = v_hold.payment_provider and p.payment_id = v_hold.payment_id;
  select r.* into v_known from requests r
  where r.scope = 'hold ' || p_hold_id and r.request_id = p_request_id;
  if found then
    if v_known.request <> v_request then
      return jsonb_build_object('outcome', 'KEY_REUSED');
    end if;
    perform ask_again(v_payment, v_cause);
    return v_known.answer;
  end if;
  if v_hold.status <> 'CONFIRMED' then
    return jsonb_build_object('outcome', 'NOT_CONFIRMED', 'status', v_hold.status);
  end if;

  select jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity - l.returned) order by l.sku)
  into v_left
  from hold_lines l where l.hold_id = p_hold_id and l.quantity > l.returned;
  if v_left is null then
    return jsonb_build_object('outcome', 'ALREADY_RETURNED');
  end if;
  v_lines := coalesce(v_lines, v_left);
  select jsonb_agg(jsonb_build_object('sku', w.sku, 'requested', w.quantity, 'sold', coalesce(l.quantity, 0)) order by w.sku)
  into v_faults
  from asked_lines(v_lines) w left join asked_lines(v_left) l on l.sku = w.sku
  where w.quantity > coalesce(l.quantity, 0);
  if v_faults is not null then
    return jsonb_build_object('outcome', 'INVALID_QUANTITY', 'lines', v_faults);
  end if;
  v_due := refund_due(v_hold, v_payment, v_lines, v_lines = v_left, p_refund_minor);
  if v_due ? 'outcome' then
    return v_due;
  end if;

  -- What is not put on the shelf moves nowhere.
  select case when p_restock then p.bins else '{}' end, p.parts into v_bins, v_parts
  from parts_of(p_hold_id, v_lines, true) p;
  v_waiting_for := 'STOCK';
  perform lock_bins(v_bins, v_budget_ends, null);
  v_now := tahan_clock();
  for i in 1 .. cardinality(v_bins) loop
    perform move_units(v_bins[i], 'return', v_parts[i], p_hold_id, p_request_id, p_reason, p_actor, '{}', v_now);
    update allocations a set returned = a.returned + v_parts[i]
    where a.hold_id = p_hold_id and a.bin_id = v_bins[i];
  end loop;
  update hold_lines l set returned = l.returned + w.quantity
  from asked_lines(v_lines) w where l.hold_id = p_hold_id and l.sku = w.sku;
  if (v_due ->> 'amountMinor')::bigint > 0 then
    insert into refunds (provider, payment_id, cause, amount_minor, key, created_at, updated_at)
    values (v_payment.provider, v_payment.payment_id, v_cause, (v_due ->> 'amountMinor')::bigint,
      refund_key(v_payment.provider, v_payment.payment_id, v_cause), v_now, v_now);
    v_refund := jsonb_build_object('provider', v_payment.provider, 'paymentId', v_payment.payment_id,
      'cause', v_cause, 'amountMinor', v_due -> 'amountMinor', 'currency', v_payment.currency);
  end if;
  v_answer := jsonb_build_object('outcome', 'RETURNED', 'lines', v_lines, 'restock', p_restock,
    'refund', v_refund, 'noRefund', v_due ->> 'noRefund');
  insert into requests (scope, request_id, request, answer, created_at)
  values ('hold ' || p_hold_id, p_request_id, v_request, v_answer, v_now);
  return v_answer;
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;

-- How much goes back for these lines, or why it can't: {amountMinor, noRefund}, or an outcome. Of an
-- order it is their price; of a hold without a price all that is left when everything is back, and
-- nobody but the operator knows what a part of it was worth.
create or replace function tahan.refund_due(
  p_hold tahan.holds, p_payment tahan.payments, p_lines jsonb, p_all boolean, p_asked bigint)
returns jsonb language plpgsql volatile as $$
declare
  v_left bigint := tahan.left_of_payment(p_payment);
  v_amount bigint := p_asked;
begin
  -- The provider has sent the money back by itself: there is nothing of it that we could send.
  if p_payment.settlement not in ('APPLIED', 'ACCEPTED_LATE') then
    return jsonb_build_object('amountMinor', 0, 'noRefund', 'TAKEN_BACK');
  end if;
  if v_amount is null then
    select case when o.total_minor is not null then (
      select sum(l.unit_price_minor * w.quantity)
      from tahan.asked_lines(p_lines) w join tahan.hold_lines l on l.hold_id = p_hold.id and l.sku = w.sku)
    end into v_amount
    from tahan.orders o where o.hold_id = p_hold.id;
    v_amount := coalesce(v_amount, case when p_all then v_left end);
    if v_amount is null then
      return jsonb_build_object('outcome', 'REFUND_REQUIRED', 'leftMinor', v_left, 'currency', p_payment.currency);
    end if;
  end if;
  if v_amount > v_left then
    return jsonb_build_object('outcome', 'REFUND_TOO_LARGE', 'amountMinor', v_amount, 'leftMinor', v_left,
      'currency', p_payment.currency);
  end if;
  return jsonb_build_object('amountMinor', v_amount,
    'noRefund', case when v_amount = 0 then case when p_asked = 0 then 'NOT_ASKED' else 'NOTHING_LEFT' end end);
end
$$;

-- A return that is asked for again asks the provider again where it had refused the refund, with the same
-- key. Not when the money has gone elsewhere meanwhile.
create or replace function tahan.ask_again(p_payment tahan.payments, p_cause text) returns void
language plpgsql volatile as $$
begin
  update tahan.refunds r set state = 'REQUESTED', updated_at = tahan.tahan_clock()
  where r.provider = p_payment.provider and r.payment_id = p_payment.payment_id and r.cause = p_cause
    and r.state = 'REFUSED' and p_payment.settlement in ('APPLIED', 'ACCEPTED_LATE')
    and r.amount_minor <= tahan.left_of_payment(p_payment);
end
$$;
