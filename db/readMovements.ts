import type { Database } from './database.js';
import { cursorParts, InvalidCursor, writeCursor } from './readHold.js';
import type { Counts, MovementType } from './values.js';

export interface Movement {
  id: string;
  sku: string;
  bin: string;
  binVersion: number;
  holdId: string | null;
  orderNumber: string | null;
  type: MovementType;
  quantity: number;
  from: Counts;
  to: Counts;
  reason: string;
  actor: string;
  requestId: string | null;
  metadata: Record<string, unknown>;
  createdAt: string;
}

export interface MovementFilter {
  sku?: string;
  holdId?: string;
  type?: MovementType;
  from?: string;
  to?: string;
  cursor?: string;
  limit: number;
}

/** The ledger, newest first; `nextCursor` is null on the last page. */
export async function readMovements(
  db: Database,
  filter: MovementFilter,
  withinMs?: number,
): Promise<{ items: Movement[]; nextCursor: string | null }> {
  let after: string | null = null;
  if (filter.cursor !== undefined) {
    [after] = cursorParts(filter.cursor, 1) as [string];
    if (!/^\d{1,18}$/.test(after)) throw new InvalidCursor('cursor');
  }
  const rows = await db.reads.rows<{ movement: Movement }>(
    {
      name: 'read_movements',
      text: `
        select jsonb_build_object(
          'id', m.id::text, 'sku', m.sku, 'bin', b.code, 'binVersion', m.bin_version,
          'holdId', m.hold_id, 'orderNumber', o.order_number, 'type', m.type, 'quantity', m.quantity,
          'from', jsonb_build_object('available', m.from_available, 'held', m.from_held, 'sold', m.from_sold),
          'to', jsonb_build_object('available', m.to_available, 'held', m.to_held, 'sold', m.to_sold),
          'reason', m.reason, 'actor', m.actor, 'requestId', m.request_id, 'metadata', m.metadata,
          'createdAt', tahan.instant(m.created_at)) as movement
        from tahan.movements m
        join tahan.bins b on b.id = m.bin_id
        left join tahan.orders o on o.hold_id = m.hold_id
        where ($1::text is null or m.sku = $1)
          and ($2::uuid is null or m.hold_id = $2)
          and ($3::text is null or m.type = $3)
          and ($4::timestamptz is null or m.created_at >= $4)
          and ($5::timestamptz is null or m.created_at < $5)
          and ($6::bigint is null or m.id < $6)
        order by m.id desc
        limit $7::int + 1`,
      values: [
        filter.sku ?? null,
        filter.holdId ?? null,
        filter.type ?? null,
        filter.from ?? null,
        filter.to ?? null,
        after,
        filter.limit,
      ],
    },
    { withinMs },
  );
  const items = rows.slice(0, filter.limit).map((row) => row.movement);
  const last = items.at(-1);
  return { items, nextCursor: rows.length > items.length && last ? writeCursor([last.id]) : null };
}
