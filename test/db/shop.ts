import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { putBin } from '../../db/bin.js';
import { claim } from '../../db/claim.js';
import type { ClaimOutcome, ClaimRequest } from '../../db/claim.js';
import { openDatabase } from '../../db/database.js';
import type { Database, DatabaseOptions } from '../../db/database.js';
import { putProduct } from '../../db/product.js';
import type { ProductSettings } from '../../db/product.js';
import { recordPayment } from '../../db/recordPayment.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import { restock } from '../../db/restock.js';
import { freshDatabase } from '../setup/database.js';
import type { OnServer } from '../setup/database.js';
import { audit } from './audit.js';

export { everything } from './books.js';

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
  /** Lets the database's clock stand still, so many ms after the end of this hold (before it if negative). */
  stopClock(holdId: string, ms: number): Promise<void>;
  now(ms?: number): Promise<string>;
  /** A connection of the owner's, closed with the shop. */
  session(): Promise<pg.Client>;
  /** Rows of a statement, by the owner. */
  query<T extends object = Record<string, unknown>>(text: string, values?: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

export async function openShop(
  server?: OnServer,
  options: Partial<DatabaseOptions> = {},
): Promise<Shop> {
  const database = await freshDatabase(server);
  const db = openDatabase({ url: database.url, takeAppRole: true, ...options });
  const sessions: pg.Client[] = [];
  const owner = new pg.Pool({ connectionString: database.url, max: 3 });
  owner.on('error', () => {});
  // The shift lives in a table, so that it counts at once for statements that are already planned.
  await owner.query(`
    create table tahan.test_clock (shift interval not null, stands_at timestamptz);
    insert into tahan.test_clock values ('0');
    grant select on tahan.test_clock to tahan_app;
    create or replace function tahan.tahan_clock() returns timestamptz language sql volatile
      as 'select coalesce(stands_at, clock_timestamp() + shift) from tahan.test_clock'`);

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
      await owner.query(
        `update tahan.test_clock set shift = $1 * interval '1 millisecond', stands_at = null`,
        [ms],
      );
    },
    async stopClock(holdId, ms) {
      await owner.query(
        `update tahan.test_clock set stands_at = h.expires_at + $2 * interval '1 millisecond'
         from tahan.holds h where h.id = $1`,
        [holdId, ms],
      );
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
