import type { Database } from './database.js';
import type { ReturnRefund } from './returnSale.js';
import type { PaymentRef } from './values.js';

/** What a workflow needs to be started for a hold that already has a row. */
export interface OpenHold {
  holdId: string;
  buyerId: string;
  idempotencyKey: string;
  requestHash: string;
  lines: { sku: string; quantity: number }[];
}

/** HELD rows in the order they were made, a page at a time after a hold, for `adopt`: each needs a workflow. */
export function listOpenHolds(
  db: Database,
  after: string | null,
  limit: number,
): Promise<OpenHold[]> {
  return db.reads.rows<OpenHold>({
    name: 'open_holds',
    text: `
      select h.id as "holdId", h.buyer_id as "buyerId", h.idempotency_key as "idempotencyKey",
        h.request_hash as "requestHash",
        (select jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity) order by l.sku)
         from tahan.hold_lines l where l.hold_id = h.id and l.quantity > 0) as lines
      from tahan.holds h
      where h.status = 'HELD' and (h.created_at, h.id) > (
        coalesce((select l.created_at from tahan.holds l where l.id = $1::uuid), '-infinity'), $1)
      order by h.created_at, h.id limit $2::int`,
    values: [after, limit],
  });
}

/** One hold as a workflow's start needs it, whatever its status; null when there is none. */
export async function readOpenHold(
  db: Database,
  holdId: string,
  withinMs?: number,
): Promise<(OpenHold & { status: string }) | null> {
  const [row] = await db.reads.rows<OpenHold & { status: string }>(
    {
      name: 'open_hold',
      text: `
        select h.id as "holdId", h.buyer_id as "buyerId", h.idempotency_key as "idempotencyKey",
          h.request_hash as "requestHash", h.status,
          coalesce((select jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity) order by l.sku)
           from tahan.hold_lines l where l.hold_id = h.id and l.quantity > 0), '[]') as lines
        from tahan.holds h where h.id = $1::uuid`,
      values: [holdId],
    },
    { withinMs },
  );
  return row ?? null;
}

/**
 * Payments that somebody must still do something about: without a settlement on a hold that has
 * ended, to be refunded, or in review. Read once when API or worker starts.
 */
export function listUnsettledPayments(db: Database): Promise<(PaymentRef & { holdId: string })[]> {
  return db.reads.rows<PaymentRef & { holdId: string }>({
    name: 'unsettled_payments',
    text: `
      select p.provider, p.payment_id as "paymentId", p.hold_id as "holdId"
      from tahan.payments p join tahan.holds h on h.id = p.hold_id
      where (p.settlement is null and p.status = 'succeeded' and h.status <> 'HELD')
        or p.settlement in ('REFUND_DUE', 'NEEDS_REVIEW')
      order by p.created_at, p.provider, p.payment_id`,
    values: [],
  });
}

/**
 * Refunds of returns that are still to be sent, or whose answer is not known: their workflow may have
 * been lost. Read once when API or worker starts. Those of settlements start with their settlement.
 */
export function listUnsentRefunds(db: Database): Promise<(ReturnRefund & { holdId: string })[]> {
  return db.reads.rows<ReturnRefund & { holdId: string }>({
    name: 'unsent_refunds',
    text: `
      select r.provider, r.payment_id as "paymentId", p.hold_id as "holdId", r.cause,
        r.amount_minor::float8 as "amountMinor", p.currency
      from tahan.refunds r join tahan.payments p using (provider, payment_id)
      where r.state in ('REQUESTED', 'CALLED') and r.cause <> 'settlement'
      order by r.created_at, r.provider, r.payment_id, r.cause`,
    values: [],
  });
}

/** Answers when Postgres does: for /readyz. */
export async function ping(db: Database, withinMs: number): Promise<void> {
  await db.reads.rows({ name: 'ping', text: 'select 1', values: [] }, { withinMs });
}
