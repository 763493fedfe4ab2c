import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sharedService } from '../api/service.js';
import type { Hold } from '../api/service.js';

describe('a hold of the usual ten minutes, on the real clock', () => {
  const service = sharedService();

  it(
    'R51: it is held for 600 s by the clock of Postgres, can be paid until then, and the unit is free within 5 s after',
    { timeout: 700_000 },
    async () => {
      const sku = await service.product([2]);
      const [waiting, paid] = [await service.hold({ [sku]: 1 }), await service.hold({ [sku]: 1 })];
      const window = ({ created_at: from, expires_at: to }: Hold) =>
        Date.parse(to!) - Date.parse(from);
      expect([window(waiting), window(paid)]).toEqual([600_000, 600_000]);
      await new Promise((done) =>
        setTimeout(done, Date.parse(paid.expires_at!) - Date.now() - 5_000),
      );
      expect((await service.get(`/v1/holds/${waiting.id}`)).body).toMatchObject({ status: 'HELD' });
      expect((await service.attempt({ [sku]: 1 })).status).toBe(409);
      await service.paid(paid.id, { payment_id: randomUUID() });
      await service.becomes(paid.id, 'CONFIRMED');
      const ended = await service.becomes(waiting.id, 'EXPIRED', 11_000);
      expect(Date.parse(ended.closed_at!) - Date.parse(waiting.expires_at!)).toBeLessThan(5_000);
      expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 1 });
    },
  );
});
