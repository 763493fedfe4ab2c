import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { putBin } from '../../db/bin.js';
import { claim } from '../../db/claim.js';
import type { ClaimOutcome, ClaimRequest } from '../../db/claim.js';
import { openDatabase } from '../../db/database.js';
import type { Database, DatabaseOptions } from '../../db/database.js';
import { DatabaseFault } from '../../db/faults.js';
import { putProduct } from '../../db/product.js';
import type { ProductSettings } from '../../db/product.js';
import { recordPayment } from '../../db/recordPayment.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import { restock } from '../../db/restock.js';
import { freshDatabase } from '../setup/database.js';
import { audit } from './audit.js';

/** A shop on a database of its own, with the moves that the tests are made of. */
export interface Shop {
  db: Database;
  url: string;
  /** A product with one bin per number given, stocked with so many units. */
  product(
    stock: number[],
    settings?: ProductSettings & { safetyStock?: number[] },
  ): Promise<string>;
  /** A request of a fresh buyer and key for one unit; what is given takes its place. */
  request(lines: Record<string, number>, rest?: Partial<ClaimRequest>): Promise<ClaimRequest>;
  claim(lines: Record<string, number>, rest?: Partial<ClaimRequest>): Promise<ClaimOutcome>;
  /** Claims and insists on HELD: the hold's id. */
  hold(lines: Record<string, number>, rest?: Partial<ClaimRequest>): Promise<string>;
  /** A succeeded payment for a hold, recorded. */
  pay(
    holdId: string,
    rest?: Partial<PaymentEvent>,
  ): Promise<PaymentEvent & Awaited<ReturnType<typeof recordPayment>>>;
  /** Moves the database's clock against the real one. */
  shiftClock(ms: number): Promise<void>;
  now(ms?: number): Promise<string>;
  /** A connection of the owner's, closed with the shop. */
  session(): Promise<pg.Client>;
  /** Rows of a statement, by the owner. */
  query<T extends object = Record<string, unknown>>(text: string, values?: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

export async function openShop(
  version?: number,
  options: Partial<DatabaseOptions> = {},
): Promise<Shop> {
  const database = await freshDatabase(version);
  const db = openDatabase({ url: database.url, takeAppRole: true, ...options });
  const sessions: pg.Client[] = [];
  const owner = new pg.Pool({ connectionString: database.url, max: 3 });
  owner.on('error', () => {});
  // The shift lives in a table, so that it counts at once for statements that are already planned.
  await owner.query(`
    create table tahan.test_clock (shift interval not null);
    insert into tahan.test_clock values ('0');
    grant select on tahan.test_clock to tahan_app;
    create or replace function tahan.tahan_clock() returns timestamptz language sql volatile
      as 'select clock_timestamp() + (select shift from tahan.test_clock)'`);

  async function session(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: database.url });
    client.on('error', () => {});
    await client.connect();
    await client.query(`set idle_in_transaction_session_timeout = 0; set search_path = tahan`);
    sessions.push(client);
    return client;
  }

  const shop: Shop = {
    db,
    url: database.url,
    session,
    async product(stock, { safetyStock = [], ...settings } = {}) {
      const sku = `p-${randomUUID().slice(0, 8)}`;
      const by = { actor: 'operator', reason: 'test' };
      const created = await putProduct(db, sku, settings, by);
      if (created.outcome !== 'CREATED') throw new Error(`no product: ${JSON.stringify(created)}`);
      for (const [index, quantity] of stock.entries()) {
        const bin = `b${index + 1}`;
        await putBin(db, { sku, code: bin, safetyStock: safetyStock[index] ?? 0 }, by);
        if (quantity > 0) {
          const change = {
            sku,
            bin,
            reason: 'opening',
            actor: 'operator',
            requestId: randomUUID(),
            reference: null,
          };
          await restock(db, { ...change, quantity });
        }
      }
      return sku;
    },
    async request(lines, rest = {}) {
      return {
        holdId: randomUUID(),
        buyerId: `buyer-${randomUUID().slice(0, 8)}`,
        idempotencyKey: randomUUID(),
        requestHash: 'hash',
        lines: Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
        holdSeconds: null,
        claimDeadline: rest.claimDeadline ?? (await shop.now(3500)),
        order: false,
        metadata: {},
        ...rest,
      };
    },
    async claim(lines, rest) {
      return claim(db, await shop.request(lines, rest));
    },
    async hold(lines, rest) {
      const answer = await shop.claim(lines, rest);
      if (answer.outcome !== 'HELD') throw new Error(`expected HELD: ${JSON.stringify(answer)}`);
      return answer.holdId;
    },
    async pay(holdId, rest = {}) {
      const event: PaymentEvent = {
        provider: 'test',
        paymentId: randomUUID(),
        eventId: randomUUID(),
        status: 'succeeded',
        holdId,
        orderNumber: null,
        amountMinor: 1000,
        currency: 'EUR',
        payload: {},
        ...rest,
      };
      return { ...event, ...(await recordPayment(db, event)) };
    },
    async shiftClock(ms) {
      await owner.query(`update tahan.test_clock set shift = $1 * interval '1 millisecond'`, [ms]);
    },
    async now(ms = 0) {
      const { rows } = await owner.query<{ at: string }>(
        `select tahan.instant(tahan.tahan_clock() + $1 * interval '1 millisecond') as at`,
        [ms],
      );
      return rows[0]!.at;
    },
    async query(text, values) {
      return (await owner.query(text, values)).rows as never;
    },
    async close() {
      await Promise.all([db.close(), owner.end()]);
      await Promise.all(sessions.map((client) => client.end()));
      await database.drop();
    },
  };
  return shop;
}

/** Resolves when so many statements of the given text wait for a lock: a fact, not a sleep. */
export async function whenWaiting(shop: Shop, text: string, count = 1): Promise<void> {
  for (;;) {
    const [row] = await shop.query<{ waiting: number }>(
      `select count(*)::int as waiting from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and position($1 in query) > 0
         and pid <> pg_backend_pid()`,
      [text],
    );
    if (row!.waiting >= count) return;
    await pause(2);
  }
}

/**
 * One shop for all tests of a describe block. After each test its clock is the real one again and
 * its books must agree.
 */
export function sharedShop(version: number, options: Partial<DatabaseOptions> = {}): Shop {
  const shop = {} as Shop;
  beforeAll(async () => {
    Object.assign(shop, await openShop(version, options));
  });
  afterEach(async () => {
    await shop.shiftClock(0);
    expect(await audit(shop.url)).toEqual({});
  });
  afterAll(() => shop.close());
  return shop;
}

/** Somebody else's open transaction, with the answer of the statement that it has run so far. */
export interface Other<T> {
  answer: T;
  client: pg.Client;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

/** Runs a statement on a real second connection and leaves its transaction open, locks and all. */
export async function other<T = unknown>(
  shop: Shop,
  text: string,
  values: unknown[] = [],
): Promise<Other<T>> {
  const client = await shop.session();
  await client.query('begin');
  const { rows } = await client.query<{ answer: T }>(text, values);
  const end = async (how: string) => {
    await client.query(how);
    await client.end();
  };
  return {
    answer: rows[0]?.answer as T,
    client,
    commit: () => end('commit'),
    rollback: () => end('rollback'),
  };
}

/** Somebody else holds the rows of these bins of a product, all of them if none is named. */
export function otherOnBins(shop: Shop, sku: string, ...codes: string[]): Promise<Other<unknown>> {
  return other(
    shop,
    `select id from tahan.bins where sku = $1 and (cardinality($2::text[]) = 0 or code = any($2))
     order by id for no key update`,
    [sku, codes],
  );
}

/** The claim as a statement of its own, for a connection that is not the pool's. */
export function claimCall(request: ClaimRequest, budgetMs = 15_000): [string, unknown[]] {
  return [
    'select tahan.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as answer',
    [
      request.holdId,
      request.buyerId,
      request.idempotencyKey,
      request.requestHash,
      JSON.stringify(request.lines),
      request.holdSeconds,
      request.claimDeadline,
      request.order,
      JSON.stringify(request.metadata),
      budgetMs,
    ],
  ];
}

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

/** Everything that a refusal has to leave as it was: bins, ledger, holds with their lines and units. */
export async function everything(shop: Shop): Promise<unknown> {
  const [row] = await shop.query<{ all: unknown }>(
    `select jsonb_build_object(
       'bins', (select jsonb_agg(to_jsonb(b) order by b.id) from tahan.bins b),
       'movements', (select count(*) from tahan.movements),
       'holds', (select jsonb_agg(to_jsonb(h) order by h.id) from tahan.holds h where h.status <> 'REJECTED'),
       'lines', (select jsonb_agg(to_jsonb(l) order by l.hold_id, l.sku) from tahan.hold_lines l),
       'allocations', (select jsonb_agg(to_jsonb(a) order by a.hold_id, a.bin_id) from tahan.allocations a),
       'orders', (select count(*) from tahan.orders)) as all`,
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

/** The code that a call failed with; a call that answered is told apart by its answer. */
export async function faultOf(call: Promise<unknown>): Promise<string> {
  try {
    return `answered ${JSON.stringify(await call)}`;
  } catch (error) {
    return error instanceof DatabaseFault ? error.code : String(error);
  }
}

/** How often each outcome came. */
export function tally(answers: { outcome: string }[]): Record<string, number> {
  const times: Record<string, number> = {};
  for (const { outcome } of answers) times[outcome] = (times[outcome] ?? 0) + 1;
  return times;
}

/** The same thing so many times at once. */
export function atOnce<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}
