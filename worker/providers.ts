import { signedHttp } from '../activities/payments/signedHttp.js';
import type { PaymentProvider } from '../activities/payments/provider.js';
import type { PaymentProviders } from '../activities/sendRefund.js';
import { InvalidSettings } from './settings.js';
import type { WorkerSettings } from './settings.js';

/**
 * Whom a worker can ask for refunds: Stripe for the payments that Stripe reported, and one provider
 * that speaks the protocol of docs/payment-provider.md for all others.
 * @throws InvalidSettings when what is set can't be used
 */
export async function providersOf({
  refunds,
  stripeApiKey,
}: WorkerSettings): Promise<PaymentProviders> {
  const stripe = stripeApiKey === undefined ? undefined : await stripeBy(stripeApiKey);
  const others = refunds === undefined ? undefined : usable(() => signedHttp(refunds));
  return (name) => (name === 'stripe' ? stripe : others);
}

/** Loaded only where it is used: it costs a start 281 ms, and 19 MB. */
async function stripeBy(apiKey: string): Promise<PaymentProvider> {
  const { stripeProvider } = await import('../activities/payments/stripe.js');
  return stripeProvider({ apiKey });
}

function usable<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new InvalidSettings(`TAHAN_REFUND_URL, TAHAN_REFUND_SECRET: ${(error as Error).message}`);
  }
}
