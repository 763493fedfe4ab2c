-- What is shown of a hold, a product and its availability: each from one snapshot.
create or replace function tahan.show_hold(p_hold_id uuid) returns jsonb
language plpgsql stable as $$
declare
  v_now timestamptz := tahan.tahan_clock();
  v_left bigint;
  v_hold tahan.holds;
begin
  select h.* into v_hold from tahan.holds h where h.id = p_hold_id;
  if not found then
    return null;
  end if;
  v_left := case when v_hold.status = 'HELD'
    then greatest(ceil(extract(epoch from v_hold.expires_at - v_now) * 1000), 0) else 0 end;
  return jsonb_build_object(
    'id', v_hold.id, 'status', v_hold.status, 'buyerId', v_hold.buyer_id,
    'requestHash', v_hold.request_hash, 'reason', v_hold.reason, 'refusal', v_hold.refusal,
    'lines', coalesce((
      select jsonb_agg(jsonb_build_object(
        'sku', l.sku, 'quantity', l.quantity, 'released', l.released, 'returned', l.returned,
        'unitPriceMinor', l.unit_price_minor,
        'allocations', coalesce((
          select jsonb_agg(jsonb_build_object('bin', b.code, 'quantity', a.quantity) order by b.id)
          from tahan.allocations a join tahan.bins b on b.id = a.bin_id
          where a.hold_id = l.hold_id and b.sku = l.sku), '[]')) order by l.sku)
      from tahan.hold_lines l where l.hold_id = v_hold.id), '[]'),
    'createdAt', tahan.instant(v_hold.created_at), 'expiresAt', tahan.instant(v_hold.expires_at),
    'expiresInSeconds', ceil(v_left / 1000.0)::integer, 'remainingMs', v_left,
    'serverTime', tahan.instant(v_now), 'closedAt', tahan.instant(v_hold.closed_at),
    'extensions', v_hold.extensions, 'metadata', v_hold.metadata,
    'payments', coalesce((
      select jsonb_agg(jsonb_build_object(
        'provider', p.provider, 'paymentId', p.payment_id, 'status', p.status,
        'amountMinor', p.amount_minor, 'currency', p.currency, 'receivedAt', tahan.instant(p.received_at),
        'inTime', p.in_time, 'settlement', p.settlement, 'settlementReason', p.settlement_reason)
        order by p.created_at, p.provider, p.payment_id)
      from tahan.payments p where p.hold_id = v_hold.id), '[]'),
    'order', (
      select jsonb_build_object(
        'orderNumber', o.order_number, 'currency', o.currency, 'totalMinor', o.total_minor,
        -- The order's status is the hold's, in other words: it can't disagree.
        'status', case v_hold.status
          when 'HELD' then 'pending_payment' when 'CONFIRMED' then 'paid'
          when 'CANCELLED' then 'cancelled' else 'expired' end,
        'placedAt', tahan.instant(o.placed_at))
      from tahan.orders o where o.hold_id = v_hold.id));
end
$$;

create or replace function tahan.show_product(p_sku text) returns jsonb
language sql stable as $$
  select tahan.product_settings(p.sku) || jsonb_build_object(
    'sku', p.sku, 'createdAt', tahan.instant(p.created_at), 'updatedAt', tahan.instant(p.updated_at),
    'bins', coalesce((
      select jsonb_agg(jsonb_build_object(
        'code', b.code, 'available', b.available, 'held', b.held, 'sold', b.sold, 'total', b.total,
        'safetyStock', b.safety_stock, 'sellable', greatest(b.available - b.safety_stock, 0),
        'version', b.version, 'updatedAt', tahan.instant(b.updated_at)) order by b.id)
      from tahan.bins b where b.sku = p.sku), '[]'))
  from tahan.products p where p.sku = p_sku collate "C"
$$;

-- Overdue unpaid units are counted as available, not as held: the next claim takes them (R07). Each bin
-- is summed on its own, with what its overdue holds have of it: a join of bins, holds and ledger would
-- count units as often as there are rows (B06).
drop function if exists tahan.availability(text[]);
create or replace function tahan.availability(p_skus text[], p_bins boolean default false) returns jsonb
language plpgsql stable as $$
declare
  v_now timestamptz := tahan.tahan_clock();
begin
  return coalesce((
    select jsonb_agg(jsonb_build_object(
      'sku', p.sku, 'active', p.active, 'display', p.display,
      'available', c.available, 'sellable', c.sellable, 'held', c.held, 'sold', c.sold, 'total', c.total,
      'safetyStock', c.safety_stock,
      -- Overdue units are shown already, and what is paid in time does not come back.
      'nextReleaseAt', tahan.instant((
        select l.open_until from tahan.hold_lines l
        where l.sku = p.sku and l.open_until > v_now
          and not exists (
            select from tahan.payments y
            where y.hold_id = l.hold_id and y.status = 'succeeded' and y.in_time and y.settlement is null)
        order by l.open_until limit 1)),
      'bins', c.bins,
      'asOf', tahan.instant(v_now)) order by p.sku)
    from tahan.products p
    cross join lateral (
      select
        coalesce(sum(b.available + coalesce(o.units, 0)), 0) as available,
        coalesce(sum(greatest(b.available + coalesce(o.units, 0) - b.safety_stock, 0)), 0) as sellable,
        coalesce(sum(b.held - coalesce(o.units, 0)), 0) as held,
        coalesce(sum(b.sold), 0) as sold,
        coalesce(sum(b.total), 0) as total,
        coalesce(sum(b.safety_stock::bigint), 0) as safety_stock,
        case when p_bins then coalesce(
          jsonb_agg(jsonb_build_object(
            'code', b.code,
            'available', b.available + coalesce(o.units, 0),
            'sellable', greatest(b.available + coalesce(o.units, 0) - b.safety_stock, 0),
            'held', b.held - coalesce(o.units, 0), 'sold', b.sold, 'total', b.total,
            'safetyStock', b.safety_stock) order by b.id) filter (where p_bins), '[]') end as bins
      from tahan.bins b
      left join (
        select a.bin_id, sum(a.quantity) as units
        from tahan.hold_lines l
        join tahan.allocations a on a.hold_id = l.hold_id
        where l.sku = p.sku and l.open_until <= v_now
          and not exists (
            select from tahan.payments y
            where y.hold_id = l.hold_id and y.status = 'succeeded' and y.in_time and y.settlement is null)
        group by a.bin_id) o on o.bin_id = b.id
      where b.sku = p.sku) c
    where p.sku = any (p_skus)), '[]');
end
$$;

-- After a claim's deadline: its row, or nothing with the key free (nothing is held and nothing will
-- be: a slow attempt is refused by its deadline), or the key is busy and it is still being decided.
create or replace function tahan.after_deadline(p_hold_id uuid, p_deadline timestamptz) returns jsonb
language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_hold jsonb;
  v_free boolean;
begin
  perform require_read_committed();
  v_free := pg_try_advisory_xact_lock(key_lock(p_hold_id));
  v_hold := show_hold(p_hold_id);
  return case
    when v_hold is not null then jsonb_build_object('outcome', 'FOUND', 'hold', v_hold)
    when v_free and tahan_clock() >= p_deadline then jsonb_build_object('outcome', 'FREE')
    else jsonb_build_object('outcome', 'BUSY')
  end;
end
$$;

-- A payment with its refunds and the events that were reported about it; null when there is none.
create or replace function tahan.show_payment(p_provider text, p_payment_id text) returns jsonb
language sql stable as $$
  select jsonb_build_object(
    'provider', p.provider, 'paymentId', p.payment_id, 'holdId', p.hold_id, 'status', p.status,
    'amountMinor', p.amount_minor, 'currency', p.currency, 'receivedAt', tahan.instant(p.received_at),
    'inTime', p.in_time, 'settlement', p.settlement, 'settlementReason', p.settlement_reason, 'review', p.review,
    'refunds', coalesce((
      select jsonb_agg(jsonb_build_object(
        'cause', r.cause, 'state', r.state, 'amountMinor', r.amount_minor, 'key', r.key, 'calls', r.calls,
        'firstCalledAt', tahan.instant(r.first_called_at), 'providerRef', r.provider_ref, 'detail', r.detail,
        'createdAt', tahan.instant(r.created_at), 'updatedAt', tahan.instant(r.updated_at)) order by r.created_at, r.cause)
      from tahan.refunds r where r.provider = p.provider and r.payment_id = p.payment_id), '[]'),
    'events', coalesce((
      select jsonb_agg(jsonb_build_object(
        'eventId', e.event_id, 'type', e.type, 'deliveries', e.deliveries, 'receivedAt', tahan.instant(e.received_at))
        order by e.received_at, e.event_id)
      from tahan.payment_events e where e.provider = p.provider and e.payment_id = p.payment_id), '[]'))
  from tahan.payments p where p.provider = p_provider and p.payment_id = p_payment_id
$$;
