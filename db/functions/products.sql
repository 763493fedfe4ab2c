-- put_product and put_bin: create, or change with a reason. What changed is kept in setting_changes;
-- it is no movement, so a bin's version stays. The key is left out of every SET: naming it takes the
-- strong lock, which blocks the foreign-key check of every claim (A15).
create or replace function tahan.put_product(
  p_sku text, p_settings jsonb, p_actor text, p_reason text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_created boolean;
  v_before jsonb;
  v_after jsonb;
  v_constraint text;
begin
  perform require_read_committed();
  perform wait_within(v_budget_ends, null);
  insert into products (sku) values (p_sku) on conflict do nothing;
  v_created := found;
  perform wait_within(v_budget_ends, null);
  perform from products p where p.sku = p_sku collate "C" for no key update;
  v_before := product_settings(p_sku);
  update products p set
    name = case when p_settings ? 'name' then p_settings ->> 'name' else p.name end,
    active = case when p_settings ? 'active' then (p_settings ->> 'active')::boolean else p.active end,
    price_minor = case when p_settings ? 'priceMinor' then (p_settings ->> 'priceMinor')::bigint else p.price_minor end,
    currency = case when p_settings ? 'currency' then p_settings ->> 'currency' else p.currency end,
    hold_seconds = case when p_settings ? 'holdSeconds' then (p_settings ->> 'holdSeconds')::integer else p.hold_seconds end,
    max_hold_seconds = case when p_settings ? 'maxHoldSeconds' then (p_settings ->> 'maxHoldSeconds')::integer else p.max_hold_seconds end,
    max_extensions = case when p_settings ? 'maxExtensions' then (p_settings ->> 'maxExtensions')::integer else p.max_extensions end,
    per_buyer_limit = case when p_settings ? 'perBuyerLimit' then (p_settings ->> 'perBuyerLimit')::integer else p.per_buyer_limit end,
    late_payment = case when p_settings ? 'latePayment' then p_settings ->> 'latePayment' else p.late_payment end,
    allocation = case when p_settings ? 'allocation' then p_settings ->> 'allocation' else p.allocation end,
    display = case when p_settings ? 'display' then p_settings ->> 'display' else p.display end
  where p.sku = p_sku collate "C";
  v_after := product_settings(p_sku);
  if not v_created and v_after = v_before then
    return jsonb_build_object('outcome', 'UNCHANGED');
  end if;
  if not v_created and (p_reason is null or p_reason !~ '\S') then
    raise exception using errcode = 'TH904';
  end if;
  update products p set updated_at = tahan_clock() where p.sku = p_sku collate "C";
  perform keep_change('product ' || p_sku, case when not v_created then v_before end, v_after, p_actor, p_reason);
  return jsonb_build_object('outcome', case when v_created then 'CREATED' else 'CHANGED' end);
exception
  when sqlstate 'TH904' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  when check_violation or not_null_violation then
    -- products_<column>_<what it must be>: the table says the rule, its name says the field.
    get stacked diagnostics v_constraint = constraint_name;
    return jsonb_build_object('outcome', 'INVALID', 'field', coalesce(nullif(v_constraint, ''), 'settings'),
      'detail', sqlerrm);
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

create or replace function tahan.put_bin(
  p_sku text, p_code text, p_safety_stock integer, p_actor text, p_reason text,
  p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_created boolean;
  v_bin bins;
  v_constraint text;
begin
  perform require_read_committed();
  if not exists (select from products p where p.sku = p_sku collate "C") then
    return jsonb_build_object('outcome', 'NOT_FOUND', 'what', 'product');
  end if;
  perform wait_within(v_budget_ends, null);
  insert into bins (sku, code, safety_stock, updated_at)
  values (p_sku, p_code, coalesce(p_safety_stock, 0), tahan_clock())
  on conflict on constraint bins_code_once do nothing;
  v_created := found;
  select b.* into v_bin from bins b where b.sku = p_sku collate "C" and b.code = p_code collate "C";
  if v_created then
    perform keep_change('bin ' || p_sku || ' ' || p_code, null,
      jsonb_build_object('safetyStock', v_bin.safety_stock), p_actor, p_reason);
    return jsonb_build_object('outcome', 'CREATED');
  end if;
  perform lock_bins(array[v_bin.id], v_budget_ends, null);
  select b.* into v_bin from bins b where b.id = v_bin.id;
  if p_safety_stock is null or p_safety_stock = v_bin.safety_stock then
    return jsonb_build_object('outcome', 'UNCHANGED');
  end if;
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  update bins b set safety_stock = p_safety_stock, updated_at = tahan_clock() where b.id = v_bin.id;
  perform keep_change('bin ' || p_sku || ' ' || p_code,
    jsonb_build_object('safetyStock', v_bin.safety_stock),
    jsonb_build_object('safetyStock', p_safety_stock), p_actor, p_reason);
  return jsonb_build_object('outcome', 'CHANGED');
exception
  when check_violation then
    get stacked diagnostics v_constraint = constraint_name;
    return jsonb_build_object('outcome', 'INVALID', 'field', v_constraint, 'detail', sqlerrm);
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

create or replace function tahan.keep_change(
  p_what text, p_before jsonb, p_after jsonb, p_actor text, p_reason text)
returns void language sql volatile as $$
  insert into tahan.setting_changes (what, before, after, actor, reason, created_at)
  values (p_what, p_before, p_after, p_actor, p_reason, tahan.tahan_clock())
$$;

-- A product's settings under the names the API uses.
create or replace function tahan.product_settings(p_sku text) returns jsonb
language sql stable as $$
  select jsonb_build_object(
    'name', p.name, 'active', p.active, 'priceMinor', p.price_minor, 'currency', p.currency,
    'holdSeconds', p.hold_seconds, 'maxHoldSeconds', p.max_hold_seconds, 'maxExtensions', p.max_extensions,
    'perBuyerLimit', p.per_buyer_limit, 'latePayment', p.late_payment, 'allocation', p.allocation,
    'display', p.display)
  from tahan.products p where p.sku = p_sku collate "C"
$$;
