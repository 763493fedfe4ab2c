import type { Database } from './database.js';
import { cursorParts, InvalidCursor, writeCursor } from './readHold.js';
import { movementJson } from './readMovements.js';
import type { Movement } from './readMovements.js';
import type { Counts } from './values.js';

/** Where a bin stands after so many movements. */
export interface Balance extends Counts {
  version: number;
}

/**
 * A page of a product's account. `opening` and `closing` are the product's, before and after the
 * movements of this page; a page opens with what the one before closed with. `bins` are those that this
 * page went through, in order, the one it ended in last.
 */
export interface Statement {
  sku: string;
  asOf: string;
  opening: Counts;
  closing: Counts;
  bins: { code: string; opening: Balance; closing: Balance }[];
  items: Movement[];
  nextCursor: string | null;
}

export interface StatementFilter {
  sku: string;
  bin?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
  cursor?: string | undefined;
  limit: number;
}

interface Read {
  asOf: string;
  /** Without a cursor all of the statement, with one from the cursor's bin on. */
  bins: { id: string; code: string; opening: Balance }[] | null;
  movements: (Movement & { binId: string })[];
}

/**
 * Every movement of a period, by (bin, bin_version), with what was there before and after (R31). Null:
 * there is no such product, or it has no such bin.
 *
 * Where a period begins in a bin is a version, not a time: after the last movement before the first one
 * at or after that instant. Times of one bin may be equal, or go back when the clock is put back; so each
 * movement belongs to one period, that of the latest time which its bin had reached, periods that meet
 * have no gap and no overlap, and opening + changes = closing whatever the clock did. Nothing that is
 * committed later comes before what was shown: versions are given under the bin's lock.
 *
 * Each page is one snapshot. A bin that was passed may move on while the pages of an open period are
 * read: its account ends with what was shown, and the product's counts are carried in the cursor.
 */
export async function readStatement(
  db: Database,
  filter: StatementFilter,
  withinMs?: number,
): Promise<Statement | 'NO_PRODUCT' | 'NO_BIN'> {
  const { sku, bin = null, from = null, to = null, limit } = filter;
  const cursor = filter.cursor === undefined ? null : readCursor(filter.cursor);
  const [read] = await db.reads.rows<Read>(
    {
      // Without a name, so that it is planned for this period.
      text: `
        with period as (
          select b.id, b.code,
            case
              when b.id = $5::bigint then $6::bigint
              when $3::timestamptz is null then 0
              else coalesce(f.version - 1, b.version) end as opened,
            coalesce(t.version - 1, b.version) as closed
          from tahan.bins b
          left join (
            select m.bin_id, min(m.bin_version) as version from tahan.movements m
            where m.sku = $1::text and m.created_at >= $3::timestamptz group by m.bin_id) f on f.bin_id = b.id
          left join (
            select m.bin_id, min(m.bin_version) as version from tahan.movements m
            where m.sku = $1::text and m.created_at >= $4::timestamptz group by m.bin_id) t on t.bin_id = b.id
          where b.sku = $1::text and ($2::text is null or b.code = $2) and ($5::bigint is null or b.id >= $5)),
        entry as (
          select b.id as bin_id, m.bin_version, ${movementJson} || jsonb_build_object('binId', b.id::text) as movement
          from period b
          join tahan.movements m on m.bin_id = b.id and m.bin_version > b.opened and m.bin_version <= b.closed
          left join tahan.orders o on o.hold_id = m.hold_id
          order by b.id, m.bin_version
          limit $7::int + 1)
        select tahan.instant(tahan.tahan_clock()) as "asOf",
          (select jsonb_agg(jsonb_build_object('id', b.id::text, 'code', b.code,
              'opening', jsonb_build_object('version', b.opened,
                'available', coalesce(m.to_available, 0), 'held', coalesce(m.to_held, 0),
                'sold', coalesce(m.to_sold, 0))) order by b.id)
           from period b
           left join tahan.movements m on m.bin_id = b.id and m.bin_version = b.opened) as bins,
          coalesce((select jsonb_agg(e.movement order by e.bin_id, e.bin_version) from entry e), '[]') as movements
        from tahan.products p where p.sku = $1::text`,
      values: [sku, bin, from, to, cursor?.binId ?? null, cursor?.version ?? null, limit],
    },
    { withinMs },
  );
  if (read === undefined) return 'NO_PRODUCT';
  if (read.bins === null && bin !== null) return 'NO_BIN';
  const all = read.bins ?? [];
  if (cursor !== null && all[0]?.id !== cursor.binId) throw new InvalidCursor('cursor');
  return pageOf(sku, read.asOf, all, read.movements, limit, cursor?.counts);
}

function pageOf(
  sku: string,
  asOf: string,
  all: NonNullable<Read['bins']>,
  movements: Read['movements'],
  limit: number,
  carried: Counts | undefined,
): Statement {
  const items = movements.slice(0, limit);
  const last = items.at(-1);
  const more = movements.length > items.length && last !== undefined;
  const closing = new Map(all.map(({ id, opening }) => [id, opening]));
  for (const { binId, binVersion, to } of items) closing.set(binId, { version: binVersion, ...to });
  // Later bins belong to the next page.
  const passed = more ? all.slice(0, all.findIndex(({ id }) => id === last.binId) + 1) : all;
  const opening = carried ?? sum(all.map((one) => one.opening));
  const sums = sum(items.map(({ from, to }) => minus(to, from)).concat(opening));
  const { available, held, sold } = sums;
  return {
    sku,
    asOf,
    opening,
    closing: sums,
    bins: passed.map(({ id, code, opening }) => ({ code, opening, closing: closing.get(id)! })),
    items,
    nextCursor: more
      ? writeCursor([last.binId, ...[last.binVersion, available, held, sold].map(String)])
      : null,
  };
}

function sum(all: Counts[]): Counts {
  const total = { available: 0, held: 0, sold: 0 };
  for (const { available, held, sold } of all) {
    total.available += available;
    total.held += held;
    total.sold += sold;
  }
  return total;
}

function minus(a: Counts, b: Counts): Counts {
  return { available: a.available - b.available, held: a.held - b.held, sold: a.sold - b.sold };
}

function readCursor(cursor: string): { binId: string; version: string; counts: Counts } {
  const parts = cursorParts(cursor, 5);
  if (!parts.every((part) => /^\d{1,15}$/.test(part))) throw new InvalidCursor('cursor');
  const [binId, version, available, held, sold] = parts as [string, string, string, string, string];
  return {
    binId,
    version,
    counts: { available: Number(available), held: Number(held), sold: Number(sold) },
  };
}
