import type { Database } from './database.js';
import { readCursor, writeCursor } from './readHold.js';
import type { Hold } from './readHold.js';
import type { HoldStatus, OrderStatus } from './values.js';

export interface OrderFilter {
  status?: OrderStatus;
  buyerId?: string;
  cursor?: string;
  limit: number;
}

/** An order's status is its hold's, in other words; a REJECTED hold is no order. */
const holdStatus: Record<OrderStatus, HoldStatus> = {
  pending_payment: 'HELD',
  paid: 'CONFIRMED',
  cancelled: 'CANCELLED',
  expired: 'EXPIRED',
};

/**
 * Orders newest first, a page at a time; `nextCursor` is null on the last page (R33). A statement of its
 * own for each set of filters, so that each is read from its index: one that says "or no such filter"
 * walks through all orders for a buyer who has three.
 */
export async function listOrders(
  db: Database,
  filter: OrderFilter,
  withinMs?: number,
): Promise<{ items: Hold[]; nextCursor: string | null }> {
  const after = filter.cursor === undefined ? null : readCursor(filter.cursor);
  // An order is placed in the moment its hold is made: the same time in both tables, each with its index.
  const [at, id] =
    filter.status === undefined ? ['o.placed_at', 'o.hold_id'] : ['h.created_at', 'h.id'];
  const values: unknown[] = [];
  const value = (of: unknown) => `$${values.push(of)}`;
  const conditions = ['true'];
  if (filter.status !== undefined)
    conditions.push(`h.status = ${value(holdStatus[filter.status])}::text`);
  if (filter.buyerId !== undefined) conditions.push(`h.buyer_id = ${value(filter.buyerId)}::text`);
  if (after !== null)
    conditions.push(`(${at}, ${id}) < (${value(after.at)}::timestamptz, ${value(after.id)}::uuid)`);
  const rows = await db.reads.rows<{ at: string; id: string; hold: Hold }>(
    {
      text: `
        select ${at}::text as at, ${id} as id, tahan.show_hold(${id}) as hold
        from tahan.orders o join tahan.holds h on h.id = o.hold_id
        where ${conditions.join(' and ')}
        order by ${at} desc, ${id} desc
        limit ${value(filter.limit)}::int + 1`,
      values,
    },
    { withinMs },
  );
  const page = rows.slice(0, filter.limit);
  const last = page.at(-1);
  return {
    items: page.map((row) => row.hold),
    nextCursor: rows.length > page.length && last ? writeCursor([last.at, last.id]) : null,
  };
}
