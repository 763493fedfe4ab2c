import { describe, expect, it } from 'vitest';
import { length } from '../setup/length.js';
import { atOnce, sharedService, statuses } from './service.js';

const service = sharedService();
const rounds = length(4, 20);

describe('the last units of a product', () => {
  it(
    `B01: 50 buyers at 1 unit, in ${rounds} rounds: 1 held and 49 refused each time; at 7 units with 2 each: 3 held, 1 unit left`,
    { timeout: 180_000 },
    async () => {
      for (let round = 0; round < rounds; round += 1) {
        const sku = await service.product([1]);
        const answers = await atOnce(50, () => service.checkout({ [sku]: 1 }));
        expect(statuses(answers)).toEqual({ 201: 1, 409: 49 });
        expect(await service.counts(sku)).toEqual({ available: 0, held: 1, sold: 0 });
        expect(await service.ledger(sku)).toEqual(['reserve 1 b1']);
      }
      const sku = await service.product([7]);
      const answers = await atOnce(50, () => service.checkout({ [sku]: 2 }));
      expect(statuses(answers)).toEqual({ 201: 3, 409: 47 });
      expect(await service.counts(sku)).toEqual({ available: 1, held: 6, sold: 0 });
    },
  );
});
