import { describe, expect, it } from 'vitest';
import { sharedService } from './service.js';
import { deliverAsStripe, succeededAtStripe } from './stripeEvents.js';

const service = sharedService();

describe('events of Stripe', () => {
  it('R05: a signed payment_intent.succeeded confirms the hold that its metadata names, once', async () => {
    const sku = await service.product([2]);
    const hold = await service.hold({ [sku]: 1 });
    const { id, body } = succeededAtStripe(hold.id, 2500);
    const first = await deliverAsStripe(service, body);
    expect([first.status, first.body]).toEqual([200, { outcome: 'RECORDED', hold_id: hold.id }]);
    const confirmed = await service.becomes(hold.id, 'CONFIRMED');
    expect(confirmed.payments).toMatchObject([
      { provider: 'stripe', payment_id: id, amount_minor: 2500, currency: 'EUR' },
    ]);
    expect((await deliverAsStripe(service, body)).body.outcome).toBe('DUPLICATE');
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 1 });
  });

  it('S1, S3: one that is altered, old, or signed by another secret is 401 and nothing is stored', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const { id, body } = succeededAtStripe(hold.id, 2500);
    const wrong = [
      await deliverAsStripe(service, body, { secret: 'whsec_0123456789abcdef0123' }),
      await deliverAsStripe(service, body, { secret: service.secret }),
      await deliverAsStripe(service, body, { ageSeconds: 400 }),
      await deliverAsStripe(service, body, { ageSeconds: -400 }),
    ];
    expect(wrong.map((answer) => [answer.status, answer.body.code])).toEqual(
      wrong.map(() => [401, 'SIGNATURE_INVALID']),
    );
    const stored = await service.shop.query('select from tahan.payments where payment_id = $1', [
      id,
    ]);
    expect(stored).toEqual([]);
    expect((await service.get(`/v1/holds/${hold.id}`)).body.status).toBe('HELD');
  });

  it('money of another program on the same account is left alone', async () => {
    const { body } = succeededAtStripe('', 2500);
    const answer = await deliverAsStripe(service, body);
    expect([answer.status, answer.body]).toEqual([200, { outcome: 'IGNORED', hold_id: null }]);
  });
});
