-- confirm: moves a hold's units from held to sold for one recorded payment, and writes that payment's
-- settlement in the same transaction, whatever the outcome, so that no payment keeps a unit pending
-- for ever (A4). A late payment under accept_if_available confirms a HELD hold out of its own units
-- and claims an EXPIRED one again: it reclaims nobody and waits for no other hold (A6).
create or replace function tahan.confirm(
  p_hold_id uuid, p_provider text, p_payment_id text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_waiting_for text;
  v_hold holds;
  v_payment payments;
  v_pending jsonb;
  v_now timestamptz;
begin
  perform require_read_committed();
  select h.* into v_hold from holds h where h.id = p_hold_id;
  if not found then
    return jsonb_build_object('outcome', 'MISSING');
  end if;
  -- The buyer's lock stands before the hold's, and the limit counts when units are claimed again.
  if v_hold.late_payment = 'accept_if_available' then
    v_waiting_for := 'BUYER';
    perform wait_within(v_budget_ends, null);
    perform pg_advisory_xact_lock(buyer_lock(v_hold.buyer_id));
  end if;
  v_waiting_for := 'HOLD';
  perform lock_holds(array[p_hold_id], v_budget_ends, null);
  select h.* into v_hold from holds h where h.id = p_hold_id;
  select p.* into v_payment from payments p
  where p.provider = p_provider and p.payment_id = p_payment_id and p.hold_id = p_hold_id;
  if not found or v_payment.status = 'failed' then
    return jsonb_build_object('outcome', 'MISSING');
  end if;

  if v_payment.settlement is not null then
    return settled_answer(v_hold, v_payment);
  elsif does_not_fit(p_hold_id, v_payment.amount_minor, v_payment.currency) then
    return settle(v_hold, v_payment, 'REFUND_DUE', 'MISMATCH');
  elsif v_hold.status = 'CONFIRMED' then
    return settle(v_hold, v_payment, 'REFUND_DUE', 'SURPLUS');
  elsif v_hold.status in ('CANCELLED', 'REJECTED') then
    return settle(v_hold, v_payment, 'REFUND_DUE', 'LATE');
  end if;

  if not v_payment.in_time then
    v_pending := pending_payment(p_hold_id);
    if v_pending is not null then
      return jsonb_build_object('outcome', 'PAYMENT_PENDING', 'payment', v_pending);
    elsif v_hold.late_payment <> 'accept_if_available' then
      return settle(v_hold, v_payment, late_settlement(v_hold.late_payment), 'LATE');
    end if;
  end if;

  v_waiting_for := 'STOCK';
  if v_hold.status = 'EXPIRED' and not take_again(v_hold, v_budget_ends) then
    return settle(v_hold, v_payment, 'REFUND_DUE', 'LATE');
  elsif v_hold.status = 'HELD' then
    perform lock_bins(bins_of_hold(p_hold_id), v_budget_ends, null);
  end if;
  v_now := tahan_clock();
  perform sell(v_hold, v_payment, v_now);
  return jsonb_build_object('outcome', 'CONFIRMED', 'late', not v_payment.in_time);
exception
  when lock_not_available then perform raise_busy(v_waiting_for);
end
$$;

-- True when the hold is an order with a price and this is not exactly its total. A plain hold, and an
-- order of products without a price, takes any amount.
create or replace function tahan.does_not_fit(p_hold_id uuid, p_amount_minor bigint, p_currency text)
returns boolean language sql volatile as $$
  select exists (
    select from tahan.orders o
    where o.hold_id = p_hold_id and o.total_minor is not null
      and (o.total_minor, o.currency) is distinct from (p_amount_minor, p_currency))
$$;

create or replace function tahan.late_settlement(p_policy text) returns text
language sql immutable as $$ select case p_policy when 'review' then 'NEEDS_REVIEW' else 'REFUND_DUE' end $$;

-- Writes a settlement that is no confirmation, and answers what confirm answers for it.
create or replace function tahan.settle(
  p_hold tahan.holds, p_payment tahan.payments, p_settlement text, p_reason text)
returns jsonb language plpgsql volatile as $$
begin
  update tahan.payments p set settlement = p_settlement, settlement_reason = p_reason
  where p.provider = p_payment.provider and p.payment_id = p_payment.payment_id
  returning p.* into p_payment;
  return tahan.settled_answer(p_hold, p_payment);
end
$$;

create or replace function tahan.settled_answer(p_hold tahan.holds, p_payment tahan.payments)
returns jsonb language sql immutable as $$
  select case
    when p_hold.status = 'CONFIRMED'
      and (p_hold.payment_provider, p_hold.payment_id) = (p_payment.provider, p_payment.payment_id)
      then jsonb_build_object('outcome', 'ALREADY_CONFIRMED')
    when p_payment.settlement_reason in ('SURPLUS', 'MISMATCH')
      then jsonb_build_object('outcome', p_payment.settlement_reason)
    else jsonb_build_object('outcome', 'TOO_LATE', 'settlement', p_payment.settlement,
      'reason', p_payment.settlement_reason)
  end
$$;

-- Claims an EXPIRED hold's units again for its late payment, into new allocations; false when the
-- buyer's limit or the stock does not allow it. The hold's own row and the buyer are locked.
create or replace function tahan.take_again(p_hold tahan.holds, p_budget_ends timestamptz)
returns boolean language plpgsql volatile as $$
declare
  v_skus text[];
  v_quantities integer[];
  v_spread boolean[];
  v_bins bigint[];
  v_now timestamptz;
begin
  select array_agg(l.sku order by l.sku), array_agg(l.quantity order by l.sku),
    array_agg(p.allocation = 'spread' order by l.sku)
  into v_skus, v_quantities, v_spread
  from tahan.hold_lines l join tahan.products p on p.sku = l.sku
  where l.hold_id = p_hold.id and l.quantity > 0;
  if tahan.over_limit(p_hold.buyer_id, v_skus, v_quantities) is not null then
    return false;
  end if;
  select coalesce(array_agg(b.id order by b.sku, b.id), '{}') into v_bins
  from tahan.bins b where b.sku = any (v_skus);
  perform tahan.lock_bins(v_bins, p_budget_ends, null);
  if exists (
    select from unnest(v_skus, v_quantities) as w (sku, quantity)
    where w.quantity > coalesce((
      select sum(greatest(b.available - b.safety_stock, 0))
      from tahan.bins b where b.id = any (v_bins) and b.sku = w.sku collate "C"), 0)
  ) then
    return false;
  end if;
  v_now := tahan.tahan_clock();
  delete from tahan.allocations a where a.hold_id = p_hold.id;
  for i in 1 .. cardinality(v_skus) loop
    perform tahan.take_units(p_hold.id, v_skus[i], v_quantities[i], v_bins, v_spread[i],
      'late payment accepted', 'payment', v_now);
  end loop;
  return true;
end
$$;

-- The units of a hold become sold, and the payment owns them. Hold and bins are locked.
create or replace function tahan.sell(p_hold tahan.holds, p_payment tahan.payments, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_part record;
begin
  for v_part in
    select a.bin_id, a.quantity from tahan.allocations a where a.hold_id = p_hold.id order by a.bin_id
  loop
    perform tahan.move_units(v_part.bin_id, 'confirm_sold', v_part.quantity, p_hold.id, null,
      case when p_payment.in_time then 'paid' else 'paid late' end,
      'payment ' || p_payment.provider || ' ' || p_payment.payment_id, '{}', p_now);
  end loop;
  update tahan.hold_lines l set open_until = null where l.hold_id = p_hold.id;
  update tahan.holds h
  set status = 'CONFIRMED', closed_at = p_now, payment_provider = p_payment.provider,
    payment_id = p_payment.payment_id, reason = case when p_payment.in_time then 'paid' else 'paid late' end
  where h.id = p_hold.id;
  update tahan.payments p
  set settlement = case when p.in_time then 'APPLIED' else 'ACCEPTED_LATE' end
  where p.provider = p_payment.provider and p.payment_id = p_payment.payment_id;
end
$$;
