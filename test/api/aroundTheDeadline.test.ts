import { expect, inject, it } from 'vitest';
import { freshDatabase } from '../setup/database.js';
import { play, vacuous } from '../payments/play.js';

/** The short form of `npm run test:payments`. */
it(
  'G8, F16, F17, F18, F25, B08: each of 100 payments around the deadline ends confirmed, accepted late or refunded once, with API and worker killed',
  { timeout: 240_000 },
  async () => {
    const database = await freshDatabase();
    try {
      const played = await play({
        databaseUrl: database.url,
        temporalAddress: inject('temporalAddress'),
        bundlePath: inject('bundlePath'),
        payments: 100,
        kills: 2,
        seed: Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000),
        patienceMs: 120_000,
      });
      expect(played.wrong, JSON.stringify(played)).toEqual([]);
      expect(vacuous(played, 0.05), JSON.stringify(played)).toEqual([]);
      const { payments, confirmed, acceptedLate, refunded, neverHeard } = played;
      expect(confirmed + acceptedLate + refunded + neverHeard).toBe(payments);
      expect(payments).toBe(100);
      expect(played.kills).toBe(4);
    } finally {
      await database.drop();
    }
  },
);
