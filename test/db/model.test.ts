import { expect, it } from 'vitest';
import { playHistories } from '../model/histories.js';
import { applyMutant, mutants } from '../model/mutants.js';
import { describeNewestPostgres, freshDatabase, isThorough } from '../setup/database.js';
import { length } from '../setup/length.js';

const first = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000);
const seeds = Array.from({ length: 400 }, (_, index) => first + index);

describeNewestPostgres('random histories', (version) => {
  it('G1: every answer of many calls at once is one that a sequential shop could have given, and no refusal is false (R01, R23, B02, B05)', async () => {
    const database = await freshDatabase(version);
    try {
      // As many as fit: `npm run test:model` plays thousands.
      const result = await playHistories(database.url, {
        seeds,
        until: Date.now() + length(5_000, 20_000),
      });
      expect(result.failures).toEqual([]);
      expect({ first, conflicts: result.conflicts }).toEqual({ first, conflicts: 0 });
      const share = result.refused / result.claims;
      expect(share, `${result.refused} of ${result.claims} claims refused`).toBeGreaterThan(0.2);
      expect(share, `${result.refused} of ${result.claims} claims refused`).toBeLessThan(0.6);
      for (const vital of ['claim HELD', 'confirm CONFIRMED', 'expire EXPIRED', 'pay RECORDED']) {
        expect(result.outcomes[vital] ?? 0, `${vital}, seeds from ${first}`).toBeGreaterThan(0);
      }
    } finally {
      await database.drop();
    }
  });

  // A harness that finds nothing proves nothing. The others: `npm run test:model -- --mutants`.
  it.runIf(isThorough(version)).each(['no tombstone', 'bins not locked'])(
    'G21: it finds "%s" soon',
    async (name) => {
      const database = await freshDatabase(version);
      try {
        await applyMutant(
          database.url,
          mutants.find((mutant) => mutant.name === name)!,
        );
        const until = Date.now() + 20_000;
        const result = await playHistories(database.url, { seeds, until, untilWrong: true });
        expect(result.failures.length, `${result.histories} histories`).toBeGreaterThan(0);
      } finally {
        await database.drop();
      }
    },
  );
});
