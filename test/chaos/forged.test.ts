import { describe, expect, it } from 'vitest';
import { forge } from '../api/forged.js';
import { sharedService, statuses } from '../api/service.js';

describe('forged deliveries', () => {
  const service = sharedService();

  it(
    'S1: of 10,000 deliveries with one bit of body, id, time or signature changed, 0 are accepted and 0 answered 5xx',
    { timeout: 900_000 },
    async () => {
      const hold = await service.hold({ [await service.product([1])]: 1 });
      const { answers, untouched } = await forge(service, hold.id, 10_000);
      expect(statuses(answers)).toEqual({ 401: answers.length });
      const stored = 'select from tahan.payments where hold_id = $1';
      expect(await service.shop.query(stored, [hold.id])).toEqual([]);
      expect((await service.get(`/v1/holds/${hold.id}`)).body.status).toBe('HELD');
      // Signed ten minutes ago it would be too old, so a fresh one shows that the secret is right.
      expect([200, 401]).toContain((await untouched()).status);
      expect((await service.paid(hold.id)).status).toBe(200);
      await service.becomes(hold.id, 'CONFIRMED');
    },
  );
});
