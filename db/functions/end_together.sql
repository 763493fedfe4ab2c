-- Pieces of expire_batch and confirm_batch: holds that end in one transaction, each bin locked once and
-- written once for all of them.

-- Locks those of the holds that nobody else has locked, and answers which. It waits for none, so the
-- order among them and with other calls can't matter. Look at them in a statement after it (A1).
create or replace function tahan.lock_free_holds(p_ids uuid[]) returns uuid[]
language plpgsql volatile as $$
begin
  return coalesce((
    select array_agg(f.id) from (
      select h.id from tahan.holds h where h.id = any (p_ids) order by h.id for no key update skip locked
    ) f), '{}');
end
$$;

-- Ends locked HELD holds, each named once, in the order given: their bins in one ordered pass, their
-- units back (EXPIRED) or sold to their payments (CONFIRMED). Writes what `give_back` and `sell` write
-- for each. A bin that somebody keeps to the end of the budget costs only its own holds their end: the
-- others go on without them. Answers which have ended.
create or replace function tahan.end_together(
  p_ids uuid[], p_status text, p_reason text, p_actors text[], p_providers text[], p_payment_ids text[],
  p_now timestamptz, p_budget_ends timestamptz)
returns uuid[] language plpgsql volatile as $$
declare
  v_type constant text := case p_status when 'EXPIRED' then 'release_reservation' else 'confirm_sold' end;
  v_back constant integer := case p_status when 'EXPIRED' then 1 else 0 end;
  v_sold constant integer := 1 - v_back;
  v_ids uuid[] := p_ids;
  v_bins bigint[];
  v_bin bigint;
  v_now timestamptz;
  v_ended bigint;
  v_until timestamptz := p_budget_ends;
begin
  while v_ids <> '{}' loop
    -- Locks and writes in one block: a lock of a savepoint that an outer one writes costs a multixact.
    begin
      select coalesce(array_agg(b.id order by b.sku, b.id), '{}') into v_bins
      from tahan.bins b
      where b.id in (select a.bin_id from tahan.allocations a where a.hold_id = any (v_ids));
      foreach v_bin in array v_bins loop
        perform tahan.lock_bins(array[v_bin], v_until, null);
      end loop;
      -- A clock that steps back must not undo what was decided under the holds' locks (F15).
      v_now := greatest(p_now, tahan.tahan_clock());

      with parts as (
        select w.i, w.id as hold_id, p_actors[w.i] as actor, a.bin_id, a.quantity as units
        from unnest(p_ids) with ordinality as w (id, i)
        join tahan.allocations a on a.hold_id = w.id
        where w.id = any (v_ids)
      ), steps as (
        select p.*, row_number() over v as step, (sum(p.units) over v)::integer as gone
        from parts p window v as (partition by p.bin_id order by p.i)
      ), moved as (
        insert into tahan.movements (
          bin_id, bin_version, sku, hold_id, type, quantity, from_available, from_held, from_sold,
          to_available, to_held, to_sold, reason, actor, created_at)
        select b.id, b.version + s.step, b.sku, s.hold_id, v_type, s.units,
          b.available + v_back * (s.gone - s.units), b.held - s.gone + s.units, b.sold + v_sold * (s.gone - s.units),
          b.available + v_back * s.gone, b.held - s.gone, b.sold + v_sold * s.gone, p_reason, s.actor, v_now
        from steps s join tahan.bins b on b.id = s.bin_id
      )
      update tahan.bins b
      set available = b.available + v_back * s.units, held = b.held - s.units, sold = b.sold + v_sold * s.units,
        version = b.version + s.steps, updated_at = v_now
      from (select p.bin_id, sum(p.units)::integer as units, count(*) as steps from parts p group by p.bin_id) s
      where b.id = s.bin_id;

      update tahan.hold_lines l set open_until = null where l.hold_id = any (v_ids);
      update tahan.holds h
      set status = p_status, reason = p_reason, closed_at = v_now, payment_provider = w.provider, payment_id = w.payment_id
      from unnest(v_ids) as v (id) join unnest(p_ids, p_providers, p_payment_ids) as w (id, provider, payment_id) using (id)
      where h.id = v.id and h.status = 'HELD';
      get diagnostics v_ended = row_count;
      if v_ended <> cardinality(v_ids) then
        raise exception '% of % holds were HELD', v_ended, cardinality(v_ids) using errcode = 'TH903';
      end if;
      return v_ids;
    exception
      -- The others' bins are not to pay for it: a hot one is free every few ms. For 50 bins 2.5 s more at most.
      when lock_not_available then v_until := greatest(p_budget_ends, clock_timestamp() + interval '50 ms');
    end;
    v_ids := array(
      select w.id from unnest(v_ids) with ordinality as w (id, i)
      where not exists (select from tahan.allocations a where a.hold_id = w.id and a.bin_id = v_bin)
      order by w.i);
  end loop;
  return v_ids;
end
$$;
