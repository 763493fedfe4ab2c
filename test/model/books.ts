import type { Lane } from './lane.js';
import type { World } from './world.js';

export interface Books {
  bins: {
    id: number;
    sku: string;
    code: string;
    available: number;
    held: number;
    sold: number;
    safety: number;
    version: number;
  }[];
  movements: Movement[];
  holds: Hold[];
  payments: Payment[];
  requests: {
    scope: string;
    id: string;
    answer: { outcome: string } & Record<string, unknown>;
    at: number;
  }[];
}

export interface Movement {
  bin: number;
  version: number;
  sku: string;
  hold: string | null;
  request: string | null;
  type: string;
  quantity: number;
  from: [number, number, number];
  to: [number, number, number];
  reason: string;
  actor: string;
  at: number;
}

export interface Hold {
  id: string;
  buyer: string;
  key: string;
  hash: string;
  status: 'HELD' | 'CONFIRMED' | 'CANCELLED' | 'EXPIRED' | 'REJECTED';
  refusal: Record<string, unknown> | null;
  policy: string | null;
  extensions: number;
  payment: string | null;
  /** Null for a REJECTED hold. */
  endsAt: number | null;
  createdAt: number;
  closedAt: number | null;
  lines: { sku: string; quantity: number; open: number | null }[];
  allocations: { bin: number; quantity: number }[];
  totalMinor: number | null;
}

export interface Payment {
  id: string;
  hold: string;
  amountMinor: number;
  status: string;
  receivedAt: number | null;
  inTime: boolean | null;
  settlement: string | null;
  reason: string | null;
}

/** What the database says of one history, from one snapshot. Instants in microseconds. */
export async function readBooks(lane: Lane, world: World): Promise<Books> {
  const [row] = await lane.query<{ books: Books }>(text, [
    world.products.map(({ sku }) => sku),
    // The drain has a buyer of its own.
    [...world.buyers, `${world.name}-drain`],
  ]);
  return row!.books;
}

const us = (column: string) => `tahan.model_us(${column})`;
const text = `
  with mine as materialized (select * from tahan.holds where buyer_id = any ($2::text[]))
  select jsonb_build_object(
    'bins', (select jsonb_agg(jsonb_build_object('id', id, 'sku', sku, 'code', code, 'available', available, 'held', held,
        'sold', sold, 'safety', safety_stock, 'version', version) order by id)
      from tahan.bins where sku = any ($1::text[])),
    'movements', (select jsonb_agg(jsonb_build_object('bin', bin_id, 'version', bin_version, 'sku', sku, 'hold', hold_id,
        'request', request_id, 'type', type, 'quantity', quantity,
        'from', jsonb_build_array(from_available, from_held, from_sold), 'to', jsonb_build_array(to_available, to_held, to_sold),
        'reason', reason, 'actor', actor, 'at', ${us('created_at')}) order by bin_id, bin_version)
      from tahan.movements where sku = any ($1::text[])),
    'holds', coalesce((select jsonb_agg(jsonb_build_object('id', h.id, 'buyer', h.buyer_id, 'key', h.idempotency_key,
        'hash', h.request_hash, 'status', h.status, 'refusal', h.refusal, 'policy', h.late_payment, 'extensions', h.extensions,
        'payment', h.payment_id, 'endsAt', ${us('h.expires_at')}, 'createdAt', ${us('h.created_at')}, 'closedAt', ${us('h.closed_at')},
        'lines', coalesce((select jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity, 'open', ${us('l.open_until')}) order by l.sku)
          from tahan.hold_lines l where l.hold_id = h.id), '[]'),
        'allocations', coalesce((select jsonb_agg(jsonb_build_object('bin', a.bin_id, 'quantity', a.quantity) order by a.bin_id)
          from tahan.allocations a where a.hold_id = h.id), '[]'),
        'totalMinor', (select o.total_minor from tahan.orders o where o.hold_id = h.id)))
      from mine h), '[]'),
    'payments', coalesce((select jsonb_agg(jsonb_build_object('id', p.payment_id, 'hold', p.hold_id, 'amountMinor', p.amount_minor,
        'status', p.status, 'receivedAt', ${us('p.received_at')}, 'inTime', p.in_time, 'settlement', p.settlement, 'reason', p.settlement_reason))
      from mine h join tahan.payments p on p.hold_id = h.id), '[]'),
    'requests', coalesce((select jsonb_agg(jsonb_build_object('scope', r.scope, 'id', r.request_id, 'answer', r.answer, 'at', ${us('r.created_at')}))
      from (select 'hold ' || id as scope from mine
        union all select 'bin ' || sku || ' ' || code from tahan.bins where sku = any ($1::text[])) s
      join tahan.requests r on r.scope = s.scope), '[]')) as books`;
