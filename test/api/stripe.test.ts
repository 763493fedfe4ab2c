import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { sharedService } from './service.js';

const service = sharedService();

/** A recorded event of a PaymentIntent that succeeded, for a hold of ours. */
function succeeded(holdId: string, amount: number): { id: string; body: string } {
  const file = new URL('../project/stripe/payment_intent.succeeded.json', import.meta.url);
  const event = JSON.parse(readFileSync(file, 'utf8')) as {
    id: string;
    data: { object: Record<string, unknown> };
  };
  event.id = `evt_${randomUUID().replaceAll('-', '')}`;
  const id = `pi_${randomUUID().replaceAll('-', '')}`;
  Object.assign(event.data.object, {
    id,
    amount,
    amount_received: amount,
    currency: 'eur',
    metadata: { hold_id: holdId },
  });
  return { id, body: JSON.stringify(event) };
}

function deliver(body: string, { secret = service.stripeSecret, ageSeconds = 0 } = {}) {
  const time = Math.floor(Date.now() / 1000) - ageSeconds;
  const signature = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
  const headers = { 'stripe-signature': `t=${time},v1=${signature}` };
  const sent = { key: null, raw: body, headers };
  return service.send<{ outcome: string }>('POST', '/v1/payments/stripe/events', sent);
}

describe('events of Stripe', () => {
  it('R05: a signed payment_intent.succeeded confirms the hold that its metadata names, once', async () => {
    const sku = await service.product([2]);
    const hold = await service.hold({ [sku]: 1 });
    const { id, body } = succeeded(hold.id, 2500);
    const first = await deliver(body);
    expect([first.status, first.body]).toEqual([200, { outcome: 'RECORDED', hold_id: hold.id }]);
    const confirmed = await service.becomes(hold.id, 'CONFIRMED');
    expect(confirmed.payments).toMatchObject([
      { provider: 'stripe', payment_id: id, amount_minor: 2500, currency: 'EUR' },
    ]);
    expect((await deliver(body)).body.outcome).toBe('DUPLICATE');
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 1 });
  });

  it('S1, S3: one that is altered, old, or signed by another secret is 401 and nothing is stored', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const { id, body } = succeeded(hold.id, 2500);
    const wrong = [
      await deliver(body, { secret: 'whsec_0123456789abcdef0123' }),
      await deliver(body, { secret: service.secret }),
      await deliver(body, { ageSeconds: 400 }),
      await deliver(body, { ageSeconds: -400 }),
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
    const { body } = succeeded('', 2500);
    const answer = await deliver(body);
    expect([answer.status, answer.body]).toEqual([200, { outcome: 'IGNORED', hold_id: null }]);
  });
});
