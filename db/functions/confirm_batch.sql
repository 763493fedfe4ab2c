-- confirm_batch: confirmations that met within a few milliseconds, in one transaction (F35): each answered
-- as `confirm` would, in the order given.
--
-- It decides only what is plain, under the holds' locks: a HELD hold and its recorded payment that
-- succeeded in time, fits, and has no settlement. Everything else (a hold that somebody else has locked, or
-- that is named twice, a closed one, late, wrong, unknown or settled money) is answered ALONE and asked
-- again with `confirm`. BUSY: somebody keeps a bin of this hold for longer than the budget; nothing has
-- changed for it, and neither wait nor fault is its neighbours'.
--
-- Locks: holds by trying, which never waits; then their bins in one ordered pass, like `confirm`. A buyer's
-- lock is for late money only.
create or replace function tahan.confirm_batch(
  p_ids uuid[], p_providers text[], p_payment_ids text[], p_budget_ms integer default 15000)
returns jsonb language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
declare
  v_budget_ends timestamptz := clock_timestamp() + p_budget_ms * interval '1 millisecond';
  v_free uuid[];
  v_plain integer[];
  v_ids uuid[];
  v_ended uuid[];
begin
  perform require_read_committed();
  v_free := lock_free_holds(p_ids);
  -- Read in a new statement, now that the holds are locked: whoever pays, cancels or expires them waits.
  select coalesce(array_agg(w.i order by w.i), '{}'), coalesce(array_agg(h.id order by w.i), '{}')
  into v_plain, v_ids
  from (select u.id, min(u.i)::integer as i from unnest(p_ids) with ordinality as u (id, i) group by u.id) w
  join holds h on h.id = w.id
  join payments p on p.provider = p_providers[w.i] and p.payment_id = p_payment_ids[w.i] and p.hold_id = h.id
  where h.id = any (v_free) and h.status = 'HELD'
    and p.status = 'succeeded' and p.in_time and p.settlement is null
    and not does_not_fit(h.id, p.amount_minor, p.currency);
  v_ended := end_together(v_ids, 'CONFIRMED', 'paid',
    array(select 'payment ' || p_providers[w.i] || ' ' || p_payment_ids[w.i] from unnest(v_plain) with ordinality as w (i, n) order by w.n),
    array(select p_providers[w.i] from unnest(v_plain) with ordinality as w (i, n) order by w.n),
    array(select p_payment_ids[w.i] from unnest(v_plain) with ordinality as w (i, n) order by w.n),
    tahan_clock(), v_budget_ends);
  update payments p set settlement = 'APPLIED'
  from unnest(v_plain) as w (i)
  where p.provider = p_providers[w.i] and p.payment_id = p_payment_ids[w.i] and p_ids[w.i] = any (v_ended);
  return (
    select coalesce(jsonb_agg(case
      when not u.i = any (v_plain) then jsonb_build_object('outcome', 'ALONE')
      when u.id = any (v_ended) then jsonb_build_object('outcome', 'CONFIRMED', 'late', false)
      else jsonb_build_object('outcome', 'BUSY')
    end order by u.i), '[]')
    from unnest(p_ids) with ordinality as u (id, i));
end
$$;
