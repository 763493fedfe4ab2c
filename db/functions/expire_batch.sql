-- expire_batch: expiries that met within a few milliseconds, in one transaction (F13, F35): each answered
-- as `expire` would, in the order given. Holds that end in the same second then cost one lock and one
-- write of their bin for up to 50 of them.
--
-- It decides only what is plain, under the holds' locks: HELD and overdue without a pending payment, not
-- due yet, ended already. A hold that somebody else has locked, one that is named twice, a pending payment,
-- an unknown hold are answered ALONE and asked again with `expire`. BUSY: somebody keeps a bin of this hold
-- for longer than the budget; it has not changed, and neither wait nor fault is its neighbours'.
--
-- Locks: holds by trying, which never waits; then their bins in one ordered pass, like `expire`.
create or replace function tahan.expire_batch(p_ids uuid[], p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_free uuid[];
  v_due uuid[];
  v_ended uuid[];
  v_now timestamptz;
begin
  perform require_read_committed();
  v_free := lock_free_holds(p_ids);
  v_now := tahan_clock();
  select coalesce(array_agg(h.id order by w.i), '{}') into v_due
  from (select u.id, min(u.i) as i from unnest(p_ids) with ordinality as u (id, i) group by u.id) w
  join holds h on h.id = w.id
  where h.id = any (v_free) and h.status = 'HELD' and h.expires_at <= v_now and pending_payment(h.id) is null;
  v_ended := end_together(v_due, 'EXPIRED', 'payment window over', array_fill('timer'::text, array[cardinality(v_due)]),
    '{}', '{}', v_now, v_budget_ends);
  -- How long to wait is counted from here: the others may have waited for their bins.
  v_now := greatest(v_now, tahan_clock());
  return (
    select coalesce(jsonb_agg(case
      when w.nth > 1 or h.id is null then jsonb_build_object('outcome', 'ALONE')
      when h.id = any (v_ended) then jsonb_build_object('outcome', 'EXPIRED')
      when h.id = any (v_due) then jsonb_build_object('outcome', 'BUSY')
      when h.status <> 'HELD' then jsonb_build_object('outcome', 'ALREADY', 'status', h.status)
      when pending_payment(h.id) is not null then jsonb_build_object('outcome', 'ALONE')
      else jsonb_build_object('outcome', 'NOT_DUE', 'remainingMs', ms_until(h.expires_at, v_now))
    end order by w.i), '[]')
    from (
      select u.id, u.i, row_number() over (partition by u.id order by u.i) as nth
      from unnest(p_ids) with ordinality as u (id, i)
    ) w
    left join holds h on h.id = w.id and h.id = any (v_free));
end
$$;
