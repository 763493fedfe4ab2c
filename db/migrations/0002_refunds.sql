-- Refunds: one row per payment and cause for ever, made before the provider is called. No row is ever
-- deleted, and what a call did is never forgotten (F18): the key of a second attempt is the first one's.
create table tahan.refunds (
  provider text not null,
  payment_id text not null,
  -- 'settlement': the money found no hold; 'return:<request id>': goods came back.
  cause text not null,
  amount_minor bigint not null,
  -- The provider's idempotency key.
  key text not null,
  state text not null default 'REQUESTED',
  calls integer not null default 0,
  first_called_at timestamptz,
  provider_ref text,
  detail text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint refunds_once primary key (provider, payment_id, cause),
  constraint refunds_key_once unique (key),
  constraint refunds_of_payment foreign key (provider, payment_id) references tahan.payments (provider, payment_id),
  constraint refunds_cause_form check (cause = 'settlement' or cause ~ '^return:.{1,200}$'),
  constraint refunds_amount_positive check (amount_minor > 0),
  -- CALLED: a call has begun, and what came of it is not known. NOT_NEEDED: the money was back before any call.
  constraint refunds_state_known check (state in ('REQUESTED', 'CALLED', 'EXECUTED', 'REFUSED', 'NOT_NEEDED')),
  constraint refunds_called_when_counted check ((calls > 0) = (first_called_at is not null)),
  constraint refunds_not_needed_uncalled check (state <> 'NOT_NEEDED' or calls = 0),
  constraint refunds_executed_after_call check (state not in ('CALLED', 'EXECUTED', 'REFUSED') or calls > 0)
);

-- Never more money back than came in, whatever wrote the row; and EXECUTED is the end.
create function tahan.check_refund() returns trigger language plpgsql as $$
declare
  v_paid bigint;
  v_back bigint;
begin
  if tg_op = 'DELETE' then
    raise exception 'refunds are never deleted' using errcode = 'TH901';
  end if;
  if tg_op = 'UPDATE' then
    if old.state in ('EXECUTED', 'NOT_NEEDED') and new is distinct from old then
      raise exception 'refund % of % % is %', old.cause, old.provider, old.payment_id, old.state
        using errcode = 'TH902';
    end if;
    if (new.provider, new.payment_id, new.cause, new.amount_minor, new.key)
       is distinct from (old.provider, old.payment_id, old.cause, old.amount_minor, old.key)
       or new.calls < old.calls then
      raise exception 'what a refund is never changes' using errcode = 'TH902';
    end if;
  end if;
  -- The payment's row serialises the sum, also against a writer that forgot the hold's lock.
  select p.amount_minor into v_paid from tahan.payments p
  where p.provider = new.provider and p.payment_id = new.payment_id for no key update;
  select coalesce(sum(r.amount_minor), 0) into v_back from tahan.refunds r
  where r.provider = new.provider and r.payment_id = new.payment_id and r.cause <> new.cause
    and r.state not in ('REFUSED', 'NOT_NEEDED');
  if new.state not in ('REFUSED', 'NOT_NEEDED') and v_back + new.amount_minor > v_paid then
    raise exception 'refunds of % for a payment of %', v_back + new.amount_minor, v_paid
      using errcode = 'TH905';
  end if;
  return new;
end
$$;
create trigger refunds_within_payment before insert or update or delete on tahan.refunds
  for each row execute function tahan.check_refund();
create trigger refunds_no_truncate before truncate on tahan.refunds
  for each statement execute function tahan.refuse_change();

-- What an operator decided about a payment in review: decision, reason, actor, at.
alter table tahan.payments add column review jsonb;
create index payments_to_settle on tahan.payments (created_at)
  where settlement is null or settlement in ('REFUND_DUE', 'NEEDS_REVIEW');
-- The operator looks for events that found no hold.
create index payment_events_unmatched on tahan.payment_events (received_at desc, provider, event_id)
  where hold_id is null and type in ('succeeded', 'failed', 'refunded');
-- Events of other types are kept too: they name no payment that we know how to read.
alter table tahan.payment_events alter column payment_id drop not null;
