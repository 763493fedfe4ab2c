import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Service } from './service.js';

/** A recorded event of a PaymentIntent that succeeded, for a hold of ours. */
export function succeededAtStripe(holdId: string, amount: number): { id: string; body: string } {
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

/** As Stripe signs it, or by another secret, or earlier. */
export function deliverAsStripe(
  service: Service,
  body: string,
  { secret = service.stripeSecret, ageSeconds = 0 } = {},
) {
  const time = Math.floor(Date.now() / 1000) - ageSeconds;
  const signature = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
  const headers = { 'stripe-signature': `t=${time},v1=${signature}` };
  const sent = { key: null, raw: body, headers };
  return service.send<{ outcome: string }>('POST', '/v1/payments/stripe/events', sent);
}
