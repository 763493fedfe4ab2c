-- What stands in front of claims, for many checkouts in one statement: the hold that each key already made, and
-- what a claim could take now. A read: it locks nothing, and a claim decides again for itself (R12).

-- Units that a claim of this product could take: per bin what is free, and what overdue unpaid holds give back to
-- it (R07), beyond its safety stock. At most 500 of those holds are counted: with 10,000 that end in the same second
-- each read would go through all of them. "more" says that some were left out, and that the number is too small.
create or replace function tahan.sellable(p_sku text, p_now timestamptz, out units bigint, out more boolean)
language sql stable as $$
  with overdue as (
    select l.hold_id
    from tahan.hold_lines l
    where l.sku = p_sku and l.open_until <= p_now
      and not exists (
        select from tahan.payments y
        where y.hold_id = l.hold_id and y.status = 'succeeded' and y.in_time and y.settlement is null)
    order by l.open_until
    limit 500
  )
  select
    coalesce(sum(greatest(b.available + coalesce(o.units, 0) - b.safety_stock, 0)), 0)::bigint,
    (select count(*) from overdue) = 500
  from tahan.bins b
  left join (
    select a.bin_id, sum(a.quantity) as units
    from overdue v join tahan.allocations a on a.hold_id = v.hold_id
    group by a.bin_id) o on o.bin_id = b.id
  where b.sku = p_sku
$$;

-- What a limit counts of a buyer once his overdue unpaid holds are given back, as a claim does first (B17).
create or replace function tahan.kept_units(p_buyer_id text, p_sku text, p_now timestamptz) returns bigint
language sql stable as $$
  select coalesce(sum(l.quantity - l.returned), 0)::bigint
  from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
  where h.buyer_id = p_buyer_id and l.sku = p_sku
    and (h.status = 'CONFIRMED'
      or h.status = 'HELD' and (h.expires_at > p_now or tahan.pending_payment(h.id) is not null))
$$;

-- p_pair_*: which buyer wants which product; p_cart_buyers: whose cart is ordered. VOLATILE, so that the holds, which
-- are read last, are at least as new as what refuses: as STABLE it could count a hold that was committed meanwhile
-- against its own key, which it did not know (the rules look in a snapshot of their own).
create or replace function tahan.read_checkouts(
  p_hold_ids uuid[], p_pair_buyers text[], p_pair_skus text[], p_cart_buyers text[])
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_now timestamptz := tahan_clock();
  v_carts jsonb := '[]';
  v_products jsonb;
  v_bought jsonb := '[]';
  v_refused jsonb := '[]';
begin
  if cardinality(p_cart_buyers) > 0 then
    select coalesce(jsonb_agg(jsonb_build_object('buyerId', c.buyer_id, 'sku', c.sku, 'quantity', c.quantity)
      order by c.buyer_id, c.sku), '[]'),
      p_pair_buyers || array_agg(c.buyer_id), p_pair_skus || array_agg(c.sku)
    into v_carts, p_pair_buyers, p_pair_skus
    from carts c where c.buyer_id = any (p_cart_buyers);
  end if;
  select coalesce(jsonb_agg(jsonb_build_object(
    'sku', p.sku, 'active', p.active, 'maxHoldSeconds', p.max_hold_seconds, 'currency', p.currency,
    'perBuyerLimit', p.per_buyer_limit, 'sellable', s.units, 'more', s.more)), '[]')
  into v_products
  from products p cross join lateral sellable(p.sku, v_now) s
  where p.sku = any (p_pair_skus);
  if v_products @? '$[*] ? (@.perBuyerLimit != null)' then
    select coalesce(jsonb_agg(jsonb_build_object(
      'buyerId', w.buyer_id, 'sku', p.sku, 'units', kept_units(w.buyer_id, p.sku, v_now))), '[]')
    into v_bought
    from (select distinct u.buyer_id, u.sku from unnest(p_pair_buyers, p_pair_skus) as u (buyer_id, sku)) w
    join products p on p.sku = w.sku collate "C"
    where p.per_buyer_limit is not null;
  end if;
  if any_buyer_rule() then
    select coalesce(jsonb_agg(jsonb_build_object('buyerId', r.buyer_id, 'refusal', r.refusal)), '[]')
    into v_refused
    from (
      select w.buyer_id, refused_by_rules(w.buyer_id, v_now) as refusal
      from (select distinct u.buyer_id from unnest(p_pair_buyers) as u (buyer_id)) w) r
    where r.refusal is not null;
  end if;
  return jsonb_build_object(
    'now', instant(v_now),
    'holds', coalesce((
      select jsonb_agg(show_hold(h.id)) from holds h where h.id = any (p_hold_ids)), '[]'),
    'products', v_products, 'carts', v_carts, 'bought', v_bought, 'refused', v_refused);
end
$$;
