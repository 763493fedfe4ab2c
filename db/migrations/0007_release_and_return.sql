-- Parts of a hold: units that a shop gave back before it was paid (B13), and units that came back after
-- they were sold (R09). `quantity` stays what is promised or sold; what was asked is quantity + released.
alter table tahan.hold_lines add column released integer not null default 0;
alter table tahan.hold_lines add column returned integer not null default 0;
alter table tahan.hold_lines drop constraint hold_lines_quantity_range;
-- A line of which nothing is left stays, so that one can see what was asked. It holds nothing.
alter table tahan.hold_lines add constraint hold_lines_quantity_not_negative check (quantity >= 0);
alter table tahan.hold_lines add constraint hold_lines_released_not_negative check (released >= 0);
alter table tahan.hold_lines add constraint hold_lines_asked_range check (quantity + released between 1 and 10000);
-- All units that came back. Those that were put on the shelf again are also in allocations.returned.
alter table tahan.hold_lines add constraint hold_lines_returned_range check (returned between 0 and quantity);
alter table tahan.hold_lines add constraint hold_lines_empty_is_closed check (quantity > 0 or open_until is null);

-- An Idempotency-Key has up to 255 characters, and is the request id of its return.
alter table tahan.refunds drop constraint refunds_cause_form;
alter table tahan.refunds add constraint refunds_cause_form check (cause = 'settlement' or cause ~ '^return:.{1,255}$');
-- What a start of API or worker looks for: money of returns that is still to be sent.
create index refunds_to_send on tahan.refunds (created_at)
  where state in ('REQUESTED', 'CALLED') and cause <> 'settlement';
