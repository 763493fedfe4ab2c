import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PaymentProvider } from '../../activities/payments/provider.js';
import { stripeProvider } from '../../activities/payments/stripe.js';
import { recorded, refundOf, stripeDouble } from './stripe/double.js';
import type { StripeDouble, StripeRefund } from './stripe/double.js';

let stripe: StripeDouble;
let provider: PaymentProvider;
const never = new AbortController().signal;

beforeEach(async () => {
  stripe = await stripeDouble();
  stripe.paid('pi_3TahanIntent00000000001', 2500, 'EUR');
  provider = stripeProvider(stripe);
});
afterEach(() => stripe.close());

/** Puts refunds that exist already in front of the list: the newest come first. */
function exist(...each: Partial<StripeRefund>[]) {
  for (const fields of each) {
    stripe.refunds.unshift({ ...recorded<StripeRefund>('refund'), ...fields });
  }
}

const ours = { tahan_key: 'late-1' };

it.each([
  ['pending', 'EXECUTED'],
  ['requires_action', 'EXECUTED'],
  ['succeeded', 'EXECUTED'],
  ['failed', 'REFUSED'],
  ['canceled', 'REFUSED'],
])('an earlier refund that is %s counts as %s', async (status, outcome) => {
  exist({ metadata: ours, status });
  expect(await provider.findRefund(refundOf(), never)).toMatchObject({ outcome });
});

it('a refund that failed says why; one beside it that went well is the answer', async () => {
  exist({ id: 're_1', metadata: ours, status: 'failed', failure_reason: 'lost_or_stolen_card' });
  const detail = 're_1 failed: lost_or_stolen_card';
  expect(await provider.findRefund(refundOf(), never)).toEqual({ outcome: 'REFUSED', detail });
  const executed = { outcome: 'EXECUTED', providerRef: 're_2' };
  exist({ id: 're_2', metadata: ours });
  expect(await provider.findRefund(refundOf(), never)).toEqual(executed);
  exist({ id: 're_3', metadata: ours, status: 'failed' });
  expect(await provider.findRefund(refundOf(), never)).toEqual(executed);
});

it.each([{ amount: 2400 }, { currency: 'usd' }])(
  'a refund with our key of %o is not this refund: REFUSED, an operator must look',
  async (fields) => {
    exist({ id: 're_1', metadata: ours, ...fields });
    const found = await provider.findRefund(refundOf(), never);
    expect(found?.outcome === 'REFUSED' && found.detail).toMatch(/^re_1 is of \d+ \w+, not/);
  },
);

it('the oldest of 251 refunds is found, on the third page; after 1,000 the search is given up, never answered "none"', async () => {
  const others = (count: number) =>
    Array.from({ length: count }, (_, at) => ({
      id: `re_${stripe.refunds.length + at}`,
      amount: 1,
    }));
  exist({ id: 're_ours', metadata: ours }, ...others(250));
  const executed = { outcome: 'EXECUTED', providerRef: 're_ours' };
  expect(await provider.findRefund(refundOf(), never)).toEqual(executed);
  expect(stripe.requests).toHaveLength(3);
  exist(...others(749));
  expect(await provider.findRefund(refundOf(), never)).toEqual(executed);
  exist(...others(1));
  await expect(provider.findRefund(refundOf(), never)).rejects.toThrow('more than 1000');
});

it.each([
  ...['"ok"', 'null', '[]', '{}', '', '<html>gateway</html>', '{"object":"list"}', '{"data":[]}'],
  ...['{"object":"list","data":[],"has_more":true}', '{"object":"refund","id":"re_1"}'],
])('%s is no list: it is thrown, and never answered "none"', async (says) => {
  stripe.next({ says });
  await expect(provider.findRefund(refundOf(), never)).rejects.toThrow();
});

it('an abort ends the call and its connection at once, with the reason of the caller; what was sent may have been done', async () => {
  stripe.next({ slow: true });
  const caller = new AbortController();
  const call = provider.refund(refundOf(), caller.signal).catch((error: unknown) => error);
  await expect.poll(() => stripe.refunds.length).toBe(1);
  const reason = new Error('the attempt is over');
  caller.abort(reason);
  expect(await call).toBe(reason);
  await expect.poll(() => stripe.requests[0]!.left).toBe(true);
  await expect(provider.refund(refundOf(), caller.signal)).rejects.toBe(reason);
  expect(stripe.requests, 'after an abort nothing is sent').toHaveLength(1);
  const found = await provider.findRefund(refundOf(), never);
  expect(found).toMatchObject({ outcome: 'EXECUTED' });
});

it('an answer that does not come in time is a fault', async () => {
  stripe.next({ slow: true });
  const hasty = stripeProvider({ ...stripe, timeoutMs: 100 });
  await expect(hasty.refund(refundOf(), never)).rejects.toThrow('Stripe: no answer');
  await expect.poll(() => stripe.requests[0]!.left).toBe(true);
});

it('nobody there is a fault, and its message names no key', async () => {
  await stripe.close();
  await expect(provider.refund(refundOf(), never)).rejects.toThrow(/^Stripe: no answer$/);
  stripe = await stripeDouble();
});

it('a redirect is not followed: the key goes to nobody else', async () => {
  const other = await stripeDouble();
  try {
    stripe.next({ redirect: `${other.baseUrl}/v1/refunds` }, { redirect: `${other.baseUrl}/v1` });
    await expect(provider.refund(refundOf(), never)).rejects.toThrow('no answer');
    await expect(provider.findRefund(refundOf(), never)).rejects.toThrow('no answer');
    expect(other.requests).toEqual([]);
  } finally {
    await other.close();
  }
});

it.each([
  ...['http://api.stripe.com', 'http://localhost:8080', 'http://127.0.0.1.example.com'],
  ...['https://api.stripe.com/v1', 'https://user:pw@api.stripe.com', 'ftp://127.0.0.1'],
])('%s is refused as the address of Stripe', (baseUrl) => {
  expect(() => stripeProvider({ apiKey: 'sk_test_1', baseUrl })).toThrow('address of Stripe');
});

it.each(['https://api.stripe.com', 'https://api.stripe.com/', 'https://10.0.0.1:8443'])(
  '%s is taken as the address of Stripe',
  (baseUrl) => {
    expect(() => stripeProvider({ apiKey: 'sk_test_1', baseUrl })).not.toThrow();
  },
);

it.each([
  ...[
    { reason: 'LATE', says: null },
    { reason: 'MISMATCH', says: null },
  ],
  ...[
    { reason: 'REVIEWED', says: null },
    { reason: 'SURPLUS', says: 'duplicate' },
  ],
  { reason: 'Mrs Rosen does not like the colour', says: 'requested_by_customer' },
])('the reason $reason stands in the book of Stripe as $says', async ({ reason, says }) => {
  await provider.refund(refundOf({ reason }), never);
  expect(stripe.refunds[0]!.reason).toBe(says);
  expect(JSON.stringify(stripe.refunds[0])).not.toContain('Rosen');
});

it.each([
  ['JPY', 500],
  ['KWD', 5120],
  ['ISK', 500],
  ['UGX', 500],
  ['EUR', 1],
])("%s %i goes back as it came, in Stripe's smallest unit", async (currency, amountMinor) => {
  stripe.paid('pi_1', amountMinor, currency);
  const request = refundOf({ paymentId: 'pi_1', amountMinor, currency });
  expect(await provider.refund(request, never)).toMatchObject({ outcome: 'EXECUTED' });
  expect(stripe.refunds[0]).toMatchObject({
    amount: amountMinor,
    currency: currency.toLowerCase(),
  });
});

it('half a krona is refused by Stripe, not rounded', async () => {
  stripe.paid('pi_1', 500, 'ISK');
  const request = refundOf({ paymentId: 'pi_1', amountMinor: 250, currency: 'ISK' });
  const detail = 'invalid_charge_amount_no_decimal_compatible';
  expect(await provider.refund(request, never)).toEqual({ outcome: 'REFUSED', detail });
});
