-- Rules about buyers that hold for the whole installation, whatever they buy (R10, S10). In the database, since the
-- claim decides by them; null = no rule.
create table tahan.buyer_rules (
  only_one boolean not null default true,
  -- How many holds one buyer may have open at once; 0 = none allowed.
  max_open_holds integer,
  -- After so many holds that expired unpaid within so many seconds the buyer may not claim for so many seconds.
  cool_down_holds integer,
  cool_down_within_seconds integer,
  cool_down_seconds integer,
  updated_at timestamptz not null default clock_timestamp(),
  constraint buyer_rules_only_one primary key (only_one),
  constraint buyer_rules_is_true check (only_one),
  constraint buyer_rules_max_open_holds_range check (max_open_holds is null or max_open_holds >= 0),
  constraint buyer_rules_cool_down_holds_range check (cool_down_holds is null or cool_down_holds between 1 and 1000),
  constraint buyer_rules_cool_down_within_range check (
    cool_down_within_seconds is null or cool_down_within_seconds between 1 and 2592000),
  constraint buyer_rules_cool_down_seconds_range check (
    cool_down_seconds is null or cool_down_seconds between 1 and 2592000),
  constraint buyer_rules_cool_down_whole check (
    num_nulls(cool_down_holds, cool_down_within_seconds, cool_down_seconds) in (0, 3))
);
insert into tahan.buyer_rules default values;
create trigger buyer_rules_no_delete before delete on tahan.buyer_rules
  for each row execute function tahan.refuse_change();

-- A buyer's open holds, and those that lapsed last, without reading the rest of what the buyer ever held.
create index holds_open_of_buyer on tahan.holds (buyer_id) where status = 'HELD';
create index holds_lapsed_of_buyer on tahan.holds (buyer_id, expires_at) where status = 'EXPIRED';
