import type { Database } from './database.js';
import { cursorParts, InvalidCursor, writeCursor } from './readHold.js';
import type { Bin } from './readProduct.js';

export interface StockedBin extends Bin {
  sku: string;
}

/** Every bin by sku and age, a page at a time: a long snapshot would keep hot rows from being pruned (A15). */
export async function readStock(
  db: Database,
  { cursor, limit }: { cursor?: string; limit: number },
  withinMs?: number,
): Promise<{ items: StockedBin[]; nextCursor: string | null }> {
  const [sku, id] = cursor === undefined ? [null, null] : cursorParts(cursor, 2);
  if (typeof id === 'string' && !/^\d{1,18}$/.test(id)) throw new InvalidCursor('cursor');
  const rows = await db.reads.rows<{ id: string; bin: StockedBin }>(
    {
      name: 'read_stock',
      text: `
        select b.id::text as id, jsonb_build_object(
          'sku', b.sku, 'code', b.code, 'available', b.available, 'held', b.held, 'sold', b.sold,
          'total', b.total, 'safetyStock', b.safety_stock,
          'sellable', greatest(b.available - b.safety_stock, 0),
          'version', b.version, 'updatedAt', tahan.instant(b.updated_at)) as bin
        from tahan.bins b
        where $1::text is null or (b.sku, b.id) > ($1::text collate "C", $2::bigint)
        order by b.sku, b.id limit $3::int + 1`,
      values: [sku, id, limit],
    },
    { withinMs },
  );
  const items = rows.slice(0, limit).map((row) => row.bin);
  const last = rows[items.length - 1];
  const more = rows.length > items.length && last !== undefined;
  return { items, nextCursor: more ? writeCursor([last.bin.sku, last.id]) : null };
}
