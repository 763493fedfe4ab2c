import { expect, it } from 'vitest';
import { putBuyerRules } from '../../db/buyerRules.js';
import { conflicts } from '../../db/database.js';
import { limitRounds } from '../db/limitRounds.js';
import { sharedShop } from '../db/shop.js';
import { describeEachPostgres } from '../setup/database.js';

const rounds = 200;

/** The full length of what test/db/limits.test.ts and test/db/buyerRules.test.ts do with 10. */
describeEachPostgres('64 claims of one buyer at once', (version) => {
  const shop = sharedShop(version, { connections: { claims: 16 }, connectWithinMs: 20_000 });

  it.each(['the units of a product', 'the open holds'])(
    `S11: never pass a limit of 2 for %s, nor get fewer, ${rounds} rounds`,
    { timeout: 900_000 },
    async (what) => {
      const before = conflicts.repeated;
      const ofProduct = what === 'the units of a product';
      const by = { actor: 'operator', reason: 'test' };
      await putBuyerRules(shop.db, { maxOpenHolds: ofProduct ? null : 2 }, by);
      const limit = ofProduct ? { perBuyerLimit: 2 } : {};
      const sku = await shop.product([rounds, rounds], { ...limit, allocation: 'spread' });
      await limitRounds(shop, sku, rounds);
      expect(conflicts.repeated - before).toBe(0);
    },
  );
});
