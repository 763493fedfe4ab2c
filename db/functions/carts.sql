-- Carts: what a buyer means to order. Nothing is held for it, and no price is kept with it (R33).
-- Each change is one call under the buyer's lock, which a claim that takes the cart holds from before it
-- reads the cart to its end: what is put is either in the order or still in the cart.
-- Outcomes: db/putCartLine.ts, db/removeCartLine.ts, db/clearCart.ts.
create or replace function tahan.put_cart_line(
  p_buyer_id text, p_sku text, p_quantity integer, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_active boolean;
begin
  perform require_read_committed();
  if p_quantity is null or p_quantity not between 1 and 10000 then
    return jsonb_build_object('outcome', 'INVALID_QUANTITY');
  end if;
  perform lock_cart(p_buyer_id, v_budget_ends, null);
  select p.active into v_active from products p where p.sku = p_sku collate "C";
  if v_active is null then
    return jsonb_build_object('outcome', 'NOT_FOUND');
  end if;
  if not v_active then
    return jsonb_build_object('outcome', 'PRODUCT_INACTIVE');
  end if;
  if (select count(*) from carts c where c.buyer_id = p_buyer_id and c.sku <> p_sku) >= 50 then
    return jsonb_build_object('outcome', 'CART_FULL');
  end if;
  -- Put, not added: a repeat leaves one line with the same quantity (B04).
  insert into carts (buyer_id, sku, quantity) values (p_buyer_id, p_sku, p_quantity)
  on conflict on constraint carts_once do update set quantity = excluded.quantity;
  return jsonb_build_object('outcome', 'PUT');
exception
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

create or replace function tahan.remove_cart_line(
  p_buyer_id text, p_sku text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
begin
  perform require_read_committed();
  perform lock_cart(p_buyer_id, v_budget_ends, null);
  delete from carts c where c.buyer_id = p_buyer_id and c.sku = p_sku collate "C";
  return jsonb_build_object('outcome', case when found then 'REMOVED' else 'NOT_THERE' end);
exception
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

create or replace function tahan.clear_cart(p_buyer_id text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
begin
  perform require_read_committed();
  perform lock_cart(p_buyer_id, v_budget_ends, null);
  perform empty_cart(p_buyer_id);
  return jsonb_build_object('outcome', 'CLEARED');
exception
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

-- A cart's lock is its buyer's: the same that a limit is counted under.
create or replace function tahan.lock_cart(
  p_buyer_id text, p_budget_ends timestamptz, p_deadline timestamptz)
returns void language plpgsql volatile as $$
begin
  perform tahan.wait_within(p_budget_ends, p_deadline);
  perform pg_advisory_xact_lock(tahan.buyer_lock(p_buyer_id));
end
$$;

-- The lines of a cart as a claim takes them, or null when it is empty. VOLATILE, and called in a statement
-- of its own after the lock: a cart read before it was bought twice, or lost a line.
create or replace function tahan.cart_lines(p_buyer_id text) returns jsonb
language sql volatile as $$
  select jsonb_agg(jsonb_build_object('sku', c.sku, 'quantity', c.quantity) order by c.sku)
  from tahan.carts c where c.buyer_id = p_buyer_id
$$;

-- All of it, under the lock that it was read under.
create or replace function tahan.empty_cart(p_buyer_id text) returns void
language sql volatile as $$
  delete from tahan.carts c where c.buyer_id = p_buyer_id
$$;

-- A cart as it stands, with what its products are called and cost at this moment: for information, since
-- only an order keeps a price. An empty cart and one that never was look the same.
create or replace function tahan.show_cart(p_buyer_id text) returns jsonb
language sql stable as $$
  select jsonb_build_object(
    'buyerId', p_buyer_id,
    'lines', coalesce(jsonb_agg(jsonb_build_object(
      'sku', l.sku, 'quantity', l.quantity, 'name', l.name, 'active', l.active,
      'unitPriceMinor', l.price_minor, 'currency', l.currency) order by l.sku), '[]'),
    'totals', coalesce((
      select jsonb_agg(jsonb_build_object('currency', t.currency, 'amountMinor', t.amount) order by t.currency)
      from (
        select p.currency, sum(p.price_minor * c.quantity) as amount
        from tahan.carts c join tahan.products p on p.sku = c.sku
        where c.buyer_id = p_buyer_id and p.price_minor is not null
        group by p.currency) t), '[]'))
  from (
    select c.sku, c.quantity, p.name, p.active, p.price_minor, p.currency
    from tahan.carts c join tahan.products p on p.sku = c.sku
    where c.buyer_id = p_buyer_id) l
$$;
