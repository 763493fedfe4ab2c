import pg from 'pg';

/**
 * What must be true of a database after anything that happened to it, as queries that find the
 * violations. The ledger is the oracle: counts, allocations and holds are held against it.
 */
const rules: Record<string, string> = {
  'each bin begins at zero and every movement continues the one before': `
    select m.bin_id, m.bin_version from tahan.movements m
    left join tahan.movements p on p.bin_id = m.bin_id and p.bin_version = m.bin_version - 1
    where (m.from_available, m.from_held, m.from_sold) is distinct from
      case when m.bin_version = 1 then (0, 0, 0) else (p.to_available, p.to_held, p.to_sold) end`,
  'a bin shows what its last movement left': `
    select b.id from tahan.bins b
    left join tahan.movements m on m.bin_id = b.id and m.bin_version = b.version
    where (b.available, b.held, b.sold) is distinct from
      (coalesce(m.to_available, 0), coalesce(m.to_held, 0), coalesce(m.to_sold, 0))
      or (m.id is null and b.version > 0)`,
  'held units are the allocations of the open holds': `
    select b.id from tahan.bins b
    where b.held <> coalesce((
      select sum(a.quantity) from tahan.allocations a join tahan.holds h on h.id = a.hold_id
      where a.bin_id = b.id and h.status = 'HELD'), 0)`,
  'sold units are the allocations of the confirmed holds': `
    select b.id from tahan.bins b
    where b.sold <> coalesce((
      select sum(a.quantity - a.returned) from tahan.allocations a join tahan.holds h on h.id = a.hold_id
      where a.bin_id = b.id and h.status = 'CONFIRMED'), 0)`,
  'a hold has exactly the units of its lines, per product': `
    select h.id from tahan.holds h
    left join tahan.hold_lines l on l.hold_id = h.id
    where case when h.status = 'REJECTED' then l.hold_id is not null else
      l.hold_id is null or l.quantity <> (
        select coalesce(sum(a.quantity), 0) from tahan.allocations a join tahan.bins b on b.id = a.bin_id
        where a.hold_id = h.id and b.sku = l.sku) end`,
  'a line is open until its hold ends, and only while it is HELD': `
    select h.id from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
    where l.open_until is distinct from case when h.status = 'HELD' and l.quantity > 0 then h.expires_at end`,
  'a hold that is open has something left': `
    select h.id from tahan.holds h
    where h.status <> 'REJECTED' and not exists (
      select from tahan.hold_lines l where l.hold_id = h.id and l.quantity > 0)`,
  'the movements of a hold fit its state': `
    select h.id from tahan.holds h
    cross join lateral (
      select coalesce(sum(m.quantity) filter (where m.type = 'reserve'), 0) as reserved,
        coalesce(sum(m.quantity) filter (where m.type = 'release_reservation'), 0) as released,
        coalesce(sum(m.quantity) filter (where m.type = 'confirm_sold'), 0) as sold
      from tahan.movements m where m.hold_id = h.id) m
    cross join lateral (
      select coalesce(sum(l.quantity), 0) as units, coalesce(sum(l.released), 0) as gone
      from tahan.hold_lines l where l.hold_id = h.id) l
    where array[m.reserved - m.released - m.sold, m.sold, m.released] is distinct from
      case h.status
        when 'HELD' then array[l.units, 0, l.gone]
        when 'CONFIRMED' then
          array[0, l.units, l.gone + case when m.reserved > l.units + l.gone then l.units else 0 end]
        when 'REJECTED' then array[0, 0, 0]::bigint[]
        else array[0, 0, l.units + l.gone] end`,
  'what of a product was asked, released and returned is what its movements say': `
    select h.id, l.sku from tahan.holds h
    join tahan.hold_lines l on l.hold_id = h.id
    cross join lateral (
      select coalesce(sum(m.quantity) filter (where m.type = 'reserve'), 0) as reserved,
        coalesce(sum(m.quantity) filter (where m.type = 'release_reservation'), 0) as released,
        coalesce(sum(m.quantity) filter (where m.type = 'return'), 0) as restocked
      from tahan.movements m where m.hold_id = h.id and m.sku = l.sku) m
    where m.reserved not in (l.quantity + l.released, case when h.status = 'CONFIRMED' then 2 * l.quantity + l.released end)
      or m.released <> l.released + case
        when h.status in ('CANCELLED', 'EXPIRED') then l.quantity
        when m.reserved > l.quantity + l.released then l.quantity
        else 0 end
      or m.restocked > l.returned or (l.returned > 0 and h.status <> 'CONFIRMED')`,
  'what a hold has in a bin is what it took from it and did not give back': `
    select m.hold_id, m.bin_id from (
      select m.hold_id, m.bin_id,
        coalesce(sum(case m.type when 'reserve' then m.quantity when 'release_reservation' then -m.quantity end), 0) as held,
        coalesce(sum(m.quantity) filter (where m.type = 'confirm_sold'), 0) as sold,
        coalesce(sum(m.quantity) filter (where m.type = 'return'), 0) as restocked
      from tahan.movements m where m.hold_id is not null group by m.hold_id, m.bin_id) m
    join tahan.holds h on h.id = m.hold_id
    left join tahan.allocations a on a.hold_id = m.hold_id and a.bin_id = m.bin_id
    where m.held <> case when h.status in ('HELD', 'CONFIRMED') then coalesce(a.quantity, 0) else 0 end
      or m.sold <> case when h.status = 'CONFIRMED' then coalesce(a.quantity, 0) else 0 end
      or m.restocked <> coalesce(a.returned, 0)`,
  'a refund for a return is the one that the return was answered with': `
    select coalesce(r.payment_id, q.scope) as id from (
      select r.provider, r.payment_id, r.amount_minor, 'hold ' || p.hold_id as scope, substr(r.cause, 8) as request_id,
        (h.payment_provider, h.payment_id) = (p.provider, p.payment_id) as own
      from tahan.refunds r join tahan.payments p using (provider, payment_id) join tahan.holds h on h.id = p.hold_id
      where r.cause <> 'settlement') r
    full join (
      select q.scope, q.request_id, q.answer -> 'refund' as refund from tahan.requests q
      where q.request ? 'return' and q.answer -> 'refund' <> 'null') q using (scope, request_id)
    where (q.refund ->> 'amountMinor')::bigint is distinct from r.amount_minor or r.own is distinct from true`,
  'a confirmed hold has one accepted payment, any other has none': `
    select h.id from tahan.holds h
    where (select count(*) from tahan.payments p where p.hold_id = h.id and p.settlement in ('APPLIED', 'ACCEPTED_LATE'))
      <> case when h.status = 'CONFIRMED' and not exists (
        select from tahan.payments p where p.hold_id = h.id and p.settlement in ('NEEDS_REVIEW', 'REFUNDED') and p.settlement_reason = 'RETURNED'
          and (p.provider, p.payment_id) = (h.payment_provider, h.payment_id))
        then 1 else 0 end`,
  'no in-time payment is left pending on a closed hold': `
    select h.id from tahan.holds h join tahan.payments p on p.hold_id = h.id
    where h.status <> 'HELD' and p.status = 'succeeded' and p.in_time and p.settlement is null`,
  'a hold that was paid in time is neither expired nor cancelled': `
    select h.id from tahan.holds h join tahan.payments p on p.hold_id = h.id
    where h.status in ('EXPIRED', 'CANCELLED') and p.status = 'succeeded' and p.in_time
      and p.settlement_reason is distinct from 'MISMATCH'`,
  'a payment that is to be refunded, or was by us, has its refund in the same state': `
    select p.provider, p.payment_id, p.settlement, r.state from tahan.payments p
    left join tahan.refunds r on r.provider = p.provider and r.payment_id = p.payment_id and r.cause = 'settlement'
    where (r.state in ('REQUESTED', 'CALLED') and p.settlement not in ('REFUND_DUE', 'REFUNDED'))
      or (r.state in ('EXECUTED', 'NOT_NEEDED') and p.settlement is distinct from 'REFUNDED')`,
  'never more is refunded than was paid': `
    select p.provider, p.payment_id from tahan.payments p join tahan.refunds r using (provider, payment_id)
    where r.state not in ('REFUSED', 'NOT_NEEDED')
    group by p.provider, p.payment_id having sum(r.amount_minor) > p.amount_minor`,
  'the total of an order is the sum of its lines at their prices': `
    select o.hold_id from tahan.orders o
    where o.total_minor is distinct from (
      select sum(l.unit_price_minor * l.quantity) from tahan.hold_lines l where l.hold_id = o.hold_id)`,
  'an order is priced in one currency in all of its lines, or in none, and no refused claim is one': `
    select o.hold_id from tahan.orders o join tahan.holds h on h.id = o.hold_id
    where h.status = 'REJECTED' or exists (
      select from tahan.hold_lines l
      where l.hold_id = o.hold_id and (l.unit_price_minor is null) <> (o.total_minor is null))`,
  'a cart has at most 50 lines': `
    select c.buyer_id from tahan.carts c group by c.buyer_id having count(*) > 50`,
  'no buyer has kept more than the limit': `
    select h.buyer_id, l.sku from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
    join tahan.products p on p.sku = l.sku
    where h.status in ('HELD', 'CONFIRMED')
    group by h.buyer_id, l.sku, p.per_buyer_limit having sum(l.quantity - l.returned) > p.per_buyer_limit`,
  'an expired hold was overdue when it closed': `
    select id from tahan.holds where status = 'EXPIRED' and closed_at < expires_at`,
};

/** The violated rules with what violates them; empty when all is well. */
export async function audit(url: string): Promise<Record<string, unknown[]>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const violations: Record<string, unknown[]> = {};
    for (const [rule, text] of Object.entries(rules)) {
      const { rows } = await client.query(text);
      if (rows.length > 0) violations[rule] = rows.slice(0, 5);
    }
    return violations;
  } finally {
    await client.end();
  }
}
