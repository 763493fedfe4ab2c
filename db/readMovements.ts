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
  sku?: string | undefined;
  /** A code is unique only within its product: without `sku` it is not looked at. */
  bin?: string | undefined;
  holdId?: string | undefined;
  orderNumber?: string | undefined;
  type?: MovementType | undefined;
  actor?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
  cursor?: string | undefined;
  limit: number;
}

/** A movement `m` in its bin `b`, with the number `o` of its order, as JSON. */
export const movementJson = `jsonb_build_object(
  'id', m.id::text, 'sku', m.sku, 'bin', b.code, 'binVersion', m.bin_version,
  'holdId', m.hold_id, 'orderNumber', o.order_number, 'type', m.type, 'quantity', m.quantity,
  'from', jsonb_build_object('available', m.from_available, 'held', m.from_held, 'sold', m.from_sold),
  'to', jsonb_build_object('available', m.to_available, 'held', m.to_held, 'sold', m.to_sold),
  'reason', m.reason, 'actor', m.actor, 'requestId', m.request_id, 'metadata', m.metadata,
  'createdAt', tahan.instant(m.created_at))`;

/**
 * The ledger, newest first by (created_at, id); `nextCursor` is null on the last page. These two never
 * change, so a walk through the pages shows each movement once that was committed before its first page,
 * and none twice. One that commits meanwhile may be missing: ids and times are given before the commit.
 * A bin's own order is its version, without a hole: a reader who misses none reads by it (readStatement).
 */
export async function readMovements(
  db: Database,
  filter: MovementFilter,
  withinMs?: number,
): Promise<{ items: Movement[]; nextCursor: string | null }> {
  const values: unknown[] = [];
  const given = (value: unknown, type: string) => `$${values.push(value)}::${type}`;
  // Only the filters that are given stand in the statement, and it has no name: a plan for all of them
  // at once could use no index (with a name, Postgres keeps such a plan after five calls).
  const conditions: string[] = [];
  if (filter.sku !== undefined) conditions.push(`m.sku = ${given(filter.sku, 'text')}`);
  if (filter.sku !== undefined && filter.bin !== undefined)
    conditions.push(
      `m.bin_id = (select i.id from tahan.bins i where i.sku = $1::text and i.code = ${given(filter.bin, 'text')})`,
    );
  if (filter.holdId !== undefined) conditions.push(`m.hold_id = ${given(filter.holdId, 'uuid')}`);
  if (filter.orderNumber !== undefined)
    conditions.push(
      `m.hold_id = (select i.hold_id from tahan.orders i where i.order_number = ${given(filter.orderNumber, 'text')})`,
    );
  if (filter.type !== undefined) conditions.push(`m.type = ${given(filter.type, 'text')}`);
  if (filter.actor !== undefined) {
    conditions.push(`m.actor = ${given(filter.actor, 'text')}`);
    // The index of actors leaves out buyers, so that no claim pays for it: only a buyer's claim moves units in the
    // buyer's name, and it is found by the hold.
    conditions.push(
      filter.actor.startsWith('buyer ')
        ? `m.hold_id in (select h.id from tahan.holds h where h.buyer_id = ${given(filter.actor.slice('buyer '.length), 'text')})`
        : `m.actor not like 'buyer %'`,
    );
  }
  if (filter.from !== undefined)
    conditions.push(`m.created_at >= ${given(filter.from, 'timestamptz')}`);
  if (filter.to !== undefined) conditions.push(`m.created_at < ${given(filter.to, 'timestamptz')}`);
  if (filter.cursor !== undefined) {
    const [at, id] = readCursor(filter.cursor);
    conditions.push(`(m.created_at, m.id) < (${given(at, 'timestamptz')}, ${given(id, 'bigint')})`);
  }
  const rows = await db.reads.rows<{ at: string; movement: Movement }>(
    {
      text: `
        select m.created_at::text as at, ${movementJson} as movement
        from tahan.movements m
        join tahan.bins b on b.id = m.bin_id
        left join tahan.orders o on o.hold_id = m.hold_id
        ${conditions.length > 0 ? `where ${conditions.join('\n and ')}` : ''}
        order by m.created_at desc, m.id desc
        limit ${given(filter.limit, 'int')} + 1`,
      values,
    },
    { withinMs },
  );
  const page = rows.slice(0, filter.limit);
  const last = page.at(-1);
  return {
    items: page.map((row) => row.movement),
    nextCursor: rows.length > page.length && last ? writeCursor([last.at, last.movement.id]) : null,
  };
}

function readCursor(cursor: string): [at: string, id: string] {
  const [at, id] = cursorParts(cursor, 2) as [string, string];
  if (Number.isNaN(Date.parse(at)) || !/^\d{1,18}$/.test(id)) throw new InvalidCursor('cursor');
  return [at, id];
}
