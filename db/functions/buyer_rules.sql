-- The rules about buyers: what a claim may not pass, whatever the products allow (R10, S10, S11).

-- Why this buyer may not claim now, or null. Called under the buyer's lock, in a statement of its own after it
-- (counted together with it, a rival's hold is missed: A12). Open is what is HELD and not overdue unpaid: an overdue
-- hold refuses nobody, whether or not its expiry has run, so nothing has to be reclaimed and no hold be locked.
-- A payment that is being recorded at that hold's end makes it CONFIRMED, not open.
create or replace function tahan.refused_by_rules(p_buyer_id text, p_now timestamptz) returns jsonb
language plpgsql volatile as $$
declare
  v_rules tahan.buyer_rules;
  v_open integer;
  v_lapsed timestamptz;
  v_retry timestamptz;
begin
  select r.* into v_rules from tahan.buyer_rules r;
  if v_rules.cool_down_holds is not null then
    -- The last lapse that filled the number within the time. A lapse is the hold's end, however late its expiry ran;
    -- a hold that a late payment has confirmed is none.
    select l.at into v_lapsed
    from (
      select h.expires_at as at,
        lead(h.expires_at, v_rules.cool_down_holds - 1) over (order by h.expires_at desc) as first_at
      from tahan.holds h
      where h.buyer_id = p_buyer_id and h.status = 'EXPIRED'
        and h.expires_at > p_now
          - (v_rules.cool_down_seconds + v_rules.cool_down_within_seconds) * interval '1 second'
    ) l
    where l.first_at >= l.at - v_rules.cool_down_within_seconds * interval '1 second'
    order by l.at desc
    limit 1;
    v_retry := v_lapsed + v_rules.cool_down_seconds * interval '1 second';
    if v_retry > p_now then
      return jsonb_build_object('outcome', 'BUYER_COOL_DOWN', 'retryAt', tahan.instant(v_retry),
        'retryAfterMs', tahan.ms_until(v_retry, p_now), 'holds', v_rules.cool_down_holds,
        'withinSeconds', v_rules.cool_down_within_seconds);
    end if;
  end if;
  if v_rules.max_open_holds is not null then
    select count(*) into v_open
    from tahan.holds h
    where h.buyer_id = p_buyer_id and h.status = 'HELD'
      and (h.expires_at > p_now or tahan.pending_payment(h.id) is not null);
    if v_open >= v_rules.max_open_holds then
      return jsonb_build_object('outcome', 'BUYER_LIMIT', 'openHolds', v_open, 'limit', v_rules.max_open_holds);
    end if;
  end if;
  return null;
end
$$;

-- Whether a claim has any rule to look at.
create or replace function tahan.any_buyer_rule() returns boolean
language sql volatile as $$
  select exists (
    select from tahan.buyer_rules r where r.max_open_holds is not null or r.cool_down_holds is not null)
$$;

-- put_buyer_rules: changes them, with a reason; what is left out keeps its value. Kept in setting_changes. A rule
-- counts for the claims that begin after it; what is open stays open.
create or replace function tahan.put_buyer_rules(
  p_rules jsonb, p_actor text, p_reason text, p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_before jsonb;
  v_after jsonb;
  v_constraint text;
begin
  perform require_read_committed();
  if p_reason is null or p_reason !~ '\S' then
    return jsonb_build_object('outcome', 'REASON_REQUIRED');
  end if;
  perform wait_within(v_budget_ends, null);
  perform from buyer_rules r where r.only_one for no key update;
  v_before := buyer_rules_set();
  update buyer_rules r set
    max_open_holds = case when p_rules ? 'maxOpenHolds' then (p_rules ->> 'maxOpenHolds')::integer else r.max_open_holds end,
    cool_down_holds = case when p_rules ? 'coolDown' then (p_rules #>> '{coolDown,holds}')::integer else r.cool_down_holds end,
    cool_down_within_seconds = case when p_rules ? 'coolDown'
      then (p_rules #>> '{coolDown,withinSeconds}')::integer else r.cool_down_within_seconds end,
    cool_down_seconds = case when p_rules ? 'coolDown'
      then (p_rules #>> '{coolDown,seconds}')::integer else r.cool_down_seconds end;
  v_after := buyer_rules_set();
  if v_after = v_before then
    return jsonb_build_object('outcome', 'UNCHANGED');
  end if;
  update buyer_rules r set updated_at = tahan_clock();
  perform keep_change('buyer rules', v_before, v_after, p_actor, p_reason);
  return jsonb_build_object('outcome', 'CHANGED');
exception
  when check_violation then
    get stacked diagnostics v_constraint = constraint_name;
    return jsonb_build_object('outcome', 'INVALID', 'field', v_constraint, 'detail', sqlerrm);
  when lock_not_available then perform raise_busy('STOCK');
end
$$;

-- The rules under the names the API uses.
create or replace function tahan.buyer_rules_set() returns jsonb
language sql volatile as $$
  select jsonb_build_object('maxOpenHolds', r.max_open_holds, 'coolDown',
    case when r.cool_down_holds is not null then jsonb_build_object('holds', r.cool_down_holds,
      'withinSeconds', r.cool_down_within_seconds, 'seconds', r.cool_down_seconds) end)
  from tahan.buyer_rules r
$$;

create or replace function tahan.show_buyer_rules() returns jsonb
language sql stable as $$
  select tahan.buyer_rules_set() || jsonb_build_object('updatedAt', tahan.instant(r.updated_at))
  from tahan.buyer_rules r
$$;
