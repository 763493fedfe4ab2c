-- What each claim paid for and no read needs. A CHECK is read from its text and compiled again by every
-- statement that writes its table: of all those that a claim meets, this one was 13,800 of 36,000
-- characters. As a function it is prepared once per connection.
create function tahan.movement_adds_up(p_type text, p_quantity integer,
  p_from_available integer, p_from_held integer, p_from_sold integer,
  p_to_available integer, p_to_held integer, p_to_sold integer)
returns boolean language plpgsql immutable as $$
declare
  v_available constant integer := p_to_available - p_from_available;
  v_held constant integer := p_to_held - p_from_held;
  v_sold constant integer := p_to_sold - p_from_sold;
begin
  case p_type
    when 'reserve' then
      return v_available = -p_quantity and v_held = p_quantity and v_sold = 0;
    when 'confirm_sold' then
      return v_available = 0 and v_held = -p_quantity and v_sold = p_quantity;
    when 'release_reservation' then
      return v_available = p_quantity and v_held = -p_quantity and v_sold = 0;
    when 'restock' then
      return v_available = p_quantity and v_held = 0 and v_sold = 0;
    when 'manual_adjustment' then
      return abs(v_available) = p_quantity and v_held = 0 and v_sold = 0;
    when 'return' then
      return v_available = p_quantity and v_held = 0 and v_sold = -p_quantity;
    else
      return false;
  end case;
end
$$;
alter table tahan.movements drop constraint movements_add_up;
alter table tahan.movements add constraint movements_add_up check (tahan.movement_adds_up(
  type, quantity, from_available, from_held, from_sold, to_available, to_held, to_sold));

-- A buyer's movements are those of the buyer's holds, and are found by them.
drop index tahan.movements_by_actor;
create index movements_by_actor on tahan.movements (actor, created_at, id) where actor not like 'buyer %';
-- Open holds are read in the order of holds_by_status.
drop index tahan.holds_open;

-- Now parts of the claim's own statements.
drop function if exists tahan.claim_terms(text[]);
drop function if exists tahan.short_skus(text[], integer[]);
