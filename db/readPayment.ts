import type { Database } from './database.js';
import { cursorParts, InvalidCursor, writeCursor } from './readHold.js';
import type { HoldPayment } from './readHold.js';
import type { PaymentRef, RefundState, Settlement } from './values.js';

/** A payment with what became of it: its refunds and the events that were reported about it. */
export interface Payment extends HoldPayment {
  holdId: string;
  /** What an operator decided; null while nobody had to. */
  review: { decision: 'accept' | 'refund'; reason: string; actor: string; at: string } | null;
  refunds: {
    cause: string;
    state: RefundState;
    amountMinor: number;
    key: string;
    calls: number;
    firstCalledAt: string | null;
    providerRef: string | null;
    detail: string | null;
    createdAt: string;
    updatedAt: string;
  }[];
  events: { eventId: string; type: string; deliveries: number; receivedAt: string }[];
}

/** The payment, or null. */
export function readPayment(
  db: Database,
  { provider, paymentId }: PaymentRef,
  withinMs?: number,
): Promise<Payment | null> {
  return db.reads.answer<Payment | null>(
    {
      name: 'read_payment',
      text: `select tahan.show_payment($1::text, $2::text) as answer`,
      values: [provider, paymentId],
    },
    { withinMs },
  );
}

export interface PaymentFilter {
  settlement?: Settlement;
  refund?: RefundState;
  cursor?: string;
  limit: number;
}

/** Payments newest first, a page at a time; `nextCursor` is null on the last page. */
export async function listPayments(
  db: Database,
  { settlement, refund, cursor, limit }: PaymentFilter,
  withinMs?: number,
): Promise<{ items: Payment[]; nextCursor: string | null }> {
  const [at, provider, paymentId] = cursor === undefined ? [] : cursorOf(cursor);
  const rows = await db.reads.rows<{ at: string; payment: Payment }>(
    {
      name: 'list_payments',
      text: `
        select p.created_at::text as at, tahan.show_payment(p.provider, p.payment_id) as payment
        from tahan.payments p
        where ($1::text is null or p.settlement = $1)
          and ($2::text is null or exists (
            select from tahan.refunds r
            where r.provider = p.provider and r.payment_id = p.payment_id and r.state = $2))
          and ($3::timestamptz is null or (p.created_at, p.provider, p.payment_id) < ($3, $4::text, $5::text))
        order by p.created_at desc, p.provider desc, p.payment_id desc
        limit $6::int + 1`,
      values: [
        settlement ?? null,
        refund ?? null,
        at ?? null,
        provider ?? null,
        paymentId ?? null,
        limit,
      ],
    },
    { withinMs },
  );
  const items = rows.slice(0, limit).map(({ payment }) => payment);
  const last = items.at(-1);
  const more = rows.length > items.length && last !== undefined;
  return {
    items,
    nextCursor: more ? writeCursor([rows[limit - 1]!.at, last.provider, last.paymentId]) : null,
  };
}

function cursorOf(cursor: string): [string, string, string] {
  const [at, provider, paymentId] = cursorParts(cursor, 3) as [string, string, string];
  if (Number.isNaN(Date.parse(at))) throw new InvalidCursor('cursor');
  return [at, provider, paymentId];
}

/** Events that found no hold, newest first: the operator looks at them, the sender repeats them (B09). */
export async function listUnmatchedEvents(
  db: Database,
  { cursor, limit }: { cursor?: string; limit: number },
  withinMs?: number,
): Promise<{ items: UnmatchedEvent[]; nextCursor: string | null }> {
  const [at, provider, eventId] = cursor === undefined ? [] : cursorOf(cursor);
  const rows = await db.reads.rows<UnmatchedEvent & { at: string }>(
    {
      name: 'unmatched_events',
      text: `
        select e.received_at::text as at, e.provider, e.event_id as "eventId", e.payment_id as "paymentId",
          e.type, e.payload, e.deliveries, tahan.instant(e.received_at) as "receivedAt"
        from tahan.payment_events e
        where e.hold_id is null and e.type in ('succeeded', 'failed', 'refunded')
          and ($1::timestamptz is null or (e.received_at, e.provider, e.event_id) < ($1, $2::text, $3::text))
        order by e.received_at desc, e.provider desc, e.event_id desc
        limit $4::int + 1`,
      values: [at ?? null, provider ?? null, eventId ?? null, limit],
    },
    { withinMs },
  );
  const last = rows[limit - 1];
  return {
    items: rows.slice(0, limit).map(({ at: _, ...event }) => event),
    nextCursor:
      rows.length > limit && last ? writeCursor([last.at, last.provider, last.eventId]) : null,
  };
}

export interface UnmatchedEvent {
  provider: string;
  eventId: string;
  paymentId: string | null;
  type: string;
  payload: unknown;
  deliveries: number;
  receivedAt: string;
}
