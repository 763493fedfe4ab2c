import type { Shop } from './shop.js';

/** Counts of a product over all bins. */
export async function counts(
  shop: Shop,
  sku: string,
): Promise<{ available: number; held: number; sold: number; total: number }> {
  const [row] = await shop.query<{ available: number; held: number; sold: number; total: number }>(
    `select sum(available)::int as available, sum(held)::int as held, sum(sold)::int as sold, sum(total)::int as total
     from tahan.bins where sku = $1`,
    [sku],
  );
  return row!;
}

/** Each bin of a product as [available, held, sold], in lock order. */
export async function bins(shop: Shop, sku: string): Promise<[number, number, number][]> {
  const rows = await shop.query<{ available: number; held: number; sold: number }>(
    'select available, held, sold from tahan.bins where sku = $1 order by id',
    [sku],
  );
  return rows.map((row) => [row.available, row.held, row.sold]);
}

/** What happened to a product, or for a hold, after its opening: "reserve 3 b1", in order. */
export async function ledger(shop: Shop, what: { sku?: string; hold?: string }): Promise<string[]> {
  const rows = await shop.query<{ entry: string }>(
    `select m.type || ' ' || m.quantity || ' ' || b.code as entry
     from tahan.movements m join tahan.bins b on b.id = m.bin_id
     where ($1::text is null or m.sku = $1) and ($2::uuid is null or m.hold_id = $2)
       and m.reason <> 'opening'
     order by m.id`,
    [what.sku ?? null, what.hold ?? null],
  );
  return rows.map((row) => row.entry);
}

/** Everything that a refusal has to leave as it was: bins, ledger, holds with their lines and units, carts. */
export async function everything(shop: Shop): Promise<unknown> {
  const [row] = await shop.query<{ all: unknown }>(
    `select jsonb_build_object(
       'bins', (select jsonb_agg(to_jsonb(b) order by b.id) from tahan.bins b),
       'movements', (select count(*) from tahan.movements),
       'holds', (select jsonb_agg(to_jsonb(h) order by h.id) from tahan.holds h where h.status <> 'REJECTED'),
       'lines', (select jsonb_agg(to_jsonb(l) order by l.hold_id, l.sku) from tahan.hold_lines l),
       'allocations', (select jsonb_agg(to_jsonb(a) order by a.hold_id, a.bin_id) from tahan.allocations a),
       'orders', (select count(*) from tahan.orders),
       'carts', (select jsonb_agg(to_jsonb(c) order by c.buyer_id, c.sku) from tahan.carts c)) as all`,
  );
  return row!.all;
}

export async function statusOf(shop: Shop, holdId: string): Promise<string | undefined> {
  const [row] = await shop.query<{ status: string }>(
    'select status from tahan.holds where id = $1',
    [holdId],
  );
  return row?.status;
}

/** How often each outcome came. */
export function tally(answers: { outcome: string }[]): Record<string, number> {
  const times: Record<string, number> = {};
  for (const { outcome } of answers) times[outcome] = (times[outcome] ?? 0) + 1;
  return times;
}

/** The bins of a product that spreads, in the order in which the claim of this hold looks at them. */
export async function spreadOrder(shop: Shop, sku: string, holdId: string): Promise<string[]> {
  const rows = await shop.query<{ code: string }>(
    `select code from tahan.bins where sku = $1
     order by hashint8extended(id, hashtextextended($2::uuid::text, 0))`,
    [sku, holdId],
  );
  return rows.map(({ code }) => code);
}
