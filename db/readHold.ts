import type { Database } from './database.js';
import type { ClaimRefusal } from './claim.js';
import type {
  HoldStatus,
  OrderStatus,
  PaymentStatus,
  Settlement,
  SettlementReason,
} from './values.js';

export interface HoldPayment {
  provider: string;
  paymentId: string;
  status: PaymentStatus;
  amountMinor: number;
  currency: string;
  receivedAt: string | null;
  inTime: boolean | null;
  settlement: Settlement | null;
  settlementReason: SettlementReason | null;
}

/** A hold as the shop sees it; all counts from one snapshot. */
export interface Hold {
  id: string;
  status: HoldStatus;
  buyerId: string;
  requestHash: string;
  /** Why it was cancelled, expired or refused; null while open. */
  reason: string | null;
  /** What a REJECTED hold lacked; null for all others. */
  refusal: ClaimRefusal | null;
  lines: {
    sku: string;
    /** What is promised or sold; what was asked is this and `released`. */
    quantity: number;
    /** Given back before it was paid (B13). */
    released: number;
    /** Of what was sold, how much came back (R09). */
    returned: number;
    unitPriceMinor: number | null;
    allocations: { bin: string; quantity: number }[];
  }[];
  createdAt: string;
  /** Null for a REJECTED hold, which never had an end. */
  expiresAt: string | null;
  /** Whole seconds left, rounded up; 0 when not HELD or overdue. */
  expiresInSeconds: number;
  remainingMs: number;
  serverTime: string;
  closedAt: string | null;
  extensions: number;
  metadata: Record<string, string>;
  payments: HoldPayment[];
  order: {
    orderNumber: string;
    currency: string | null;
    totalMinor: number | null;
    status: OrderStatus;
    placedAt: string;
  } | null;
}

/** The hold with this id, or null. */
export function readHold(db: Database, holdId: string, withinMs?: number): Promise<Hold | null> {
  return db.reads.answer<Hold | null>(
    { name: 'read_hold', text: `select tahan.show_hold($1::uuid) as answer`, values: [holdId] },
    { withinMs },
  );
}

/** The hold of this order number, or null. */
export function readOrder(
  db: Database,
  orderNumber: string,
  withinMs?: number,
): Promise<Hold | null> {
  return db.reads.answer<Hold | null>(
    {
      name: 'read_order',
      text: `select (select tahan.show_hold(o.hold_id) from tahan.orders o where o.order_number = $1::text) as answer`,
      values: [orderNumber],
    },
    { withinMs },
  );
}

export interface HoldFilter {
  status?: HoldStatus;
  sku?: string;
  buyerId?: string;
  expiresBefore?: string;
  cursor?: string;
  limit: number;
}

/** Holds newest first, a page at a time; `nextCursor` is null on the last page. */
export async function listHolds(
  db: Database,
  filter: HoldFilter,
  withinMs?: number,
): Promise<{ items: Hold[]; nextCursor: string | null }> {
  const after = filter.cursor === undefined ? null : readCursor(filter.cursor);
  const rows = await db.reads.rows<{ at: string; id: string; hold: Hold }>(
    {
      name: 'list_holds',
      text: `
        select h.created_at::text as at, h.id, tahan.show_hold(h.id) as hold
        from tahan.holds h
        where ($1::text is null or h.status = $1)
          and ($2::text is null or exists (
            select from tahan.hold_lines l where l.hold_id = h.id and l.sku = $2))
          and ($3::text is null or h.buyer_id = $3)
          and ($4::timestamptz is null or h.expires_at < $4)
          and ($5::timestamptz is null or (h.created_at, h.id) < ($5, $6::uuid))
        order by h.created_at desc, h.id desc
        limit $7::int + 1`,
      values: [
        filter.status ?? null,
        filter.sku ?? null,
        filter.buyerId ?? null,
        filter.expiresBefore ?? null,
        after?.at ?? null,
        after?.id ?? null,
        filter.limit,
      ],
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

/** Thrown for a cursor that this service did not make: the caller's fault, a 400. */
export class InvalidCursor extends Error {
  override readonly name = 'InvalidCursor';
}

export function writeCursor(parts: string[]): string {
  return Buffer.from(JSON.stringify(parts)).toString('base64url');
}

/** The parts of a page's end: its last row's time and id. */
export function readCursor(cursor: string): { at: string; id: string } {
  const [at, id] = cursorParts(cursor, 2);
  if (Number.isNaN(Date.parse(at!)) || !/^[0-9a-f-]{36}$/.test(id!))
    throw new InvalidCursor('cursor');
  return { at: at!, id: id! };
}

export function cursorParts(cursor: string, count: number): string[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString());
    if (
      Array.isArray(parts) &&
      parts.length === count &&
      parts.every((part) => typeof part === 'string')
    ) {
      return parts;
    }
  } catch {
    // falls through to the one answer for every broken cursor
  }
  throw new InvalidCursor('cursor');
}
