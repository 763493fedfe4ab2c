import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { createActivities } from '../../activities/index.js';
import type { ClaimRequest } from '../../db/claim.js';
import { openDatabase } from '../../db/database.js';
import type { Database, DatabaseOptions } from '../../db/database.js';
import { readHold } from '../../db/readHold.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { endOf, engine, handleOf } from './engine.js';
import type { Engine, EngineOptions } from './engine.js';
import { Gates } from './gates.js';
import { claimAgain } from './talk.js';

/** A shop on Postgres and its workflows on Temporal, both real. */
export interface Counter {
  shop: Shop;
  temporal: Engine;
  gates: Gates;
  requestFor(sku: string, rest?: Partial<ClaimRequest>): Promise<HoldRequest>;
  /** Claims one unit of a product, through the workflow, and expects to get it. */
  hold(sku: string, rest?: Partial<ClaimRequest>): Promise<HoldRequest>;
  counts(sku: string): Promise<{ available: number; held: number; sold: number }>;
  movementsOf(request: { holdId: string }): Promise<string[]>;
  row(request: { holdId: string }): Promise<NonNullable<Awaited<ReturnType<typeof readHold>>>>;
  /** Waits for the workflow's end, which must be the row's, and COMPLETED. */
  end(request: { holdId: string }): Promise<string>;
}

/** One for all tests of a file. After each the books must agree and no workflow task have failed. */
export function sharedCounter(
  options: EngineOptions & {
    database?: Partial<DatabaseOptions>;
    /** The way of the activities to their database, given its address. */
    way?: (url: string) => Promise<string>;
  } = {},
): Counter {
  const { database, way = (url) => Promise.resolve(url), ...rest } = options;
  let activitiesDb: Database;
  const counter: Counter = {
    gates: new Gates(),
    shop: undefined!,
    temporal: undefined!,
    async requestFor(sku, of = {}) {
      return { ...(await counter.shop.request({ [sku]: 1 }, of)), indexed: true };
    },
    async hold(sku, of) {
      const request = await counter.requestFor(sku, of);
      const sent = await claimAgain(counter.temporal, request);
      expect(sent).toMatchObject({ outcome: 'ANSWERED', answer: { outcome: 'HELD' } });
      return request;
    },
    async counts(sku) {
      const [bin] = await counter.shop.query<Awaited<ReturnType<Counter['counts']>>>(
        'select available, held, sold from tahan.bins where sku = $1',
        [sku],
      );
      return bin!;
    },
    async movementsOf({ holdId }) {
      const rows = await counter.shop.query<{ type: string }>(
        'select type from tahan.movements where hold_id = $1 order by bin_id, bin_version',
        [holdId],
      );
      return rows.map(({ type }) => type);
    },
    async row({ holdId }) {
      return (await readHold(counter.shop.db, holdId))!;
    },
    async end(request) {
      const { outcome } = await endOf(counter.temporal, request.holdId);
      expect(outcome).toBe((await counter.row(request)).status);
      const { status } = await handleOf(counter.temporal, request.holdId).describe();
      expect(status.name).toBe('COMPLETED');
      return outcome as string;
    },
  };
  beforeAll(async () => {
    counter.shop = await openShop(undefined, database);
    activitiesDb = openDatabase({
      url: await way(counter.shop.url),
      takeAppRole: true,
      ...database,
    });
    const activities = counter.gates.wrap(createActivities(activitiesDb));
    counter.temporal = await engine(activities, rest);
    await counter.temporal.start();
  });
  afterEach(async () => {
    await counter.shop.shiftClock(0);
    expect(counter.temporal.problems.splice(0)).toEqual([]);
    expect(await audit(counter.shop.url)).toEqual({});
  });
  afterAll(async () => {
    await counter.temporal.close();
    await activitiesDb.close();
    await counter.shop.close();
  });
  return counter;
}
