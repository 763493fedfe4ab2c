import { afterAll, beforeAll, it } from 'vitest';
import { describeNewestPostgres } from '../setup/database.js';
import { length } from '../setup/length.js';
import { mixedLoad } from './mixedLoad.js';
import { openShop } from './shop.js';
import type { Shop } from './shop.js';

/** About 4 s, and about 60 s. */
const calls = length(1_500, 30_000);

describeNewestPostgres('mixed load', (version) => {
  let shop: Shop;
  beforeAll(async () => {
    // As many connections as clients: the locks are to be contended, not the pools.
    shop = await openShop(version, {
      connections: { claims: 12, changes: 12, reads: 2 },
      connectWithinMs: 20_000,
    });
  });
  afterAll(() => shop.close());

  it(
    `B05, R01, R23: after ${calls} claims, payments at the deadline, expiries, cancels, extends and adjustments by 20 clients at once every count equals its records, with no repair, and nothing deadlocked`,
    { timeout: length(60_000, 600_000) },
    async () => {
      const began = performance.now();
      const answers = await mixedLoad(shop, calls);
      if (length(0, 1) || process.env['TAHAN_VERBOSE'])
        console.log(version, Math.round(performance.now() - began), 'ms', answers);
    },
  );
});
