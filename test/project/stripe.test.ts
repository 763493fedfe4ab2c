import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PaymentProvider, RefundRequest } from '../../activities/payments/provider.js';
import { stripeProvider } from '../../activities/payments/stripe.js';
import { dice } from '../model/dice.js';
import { recorded, refundOf as refund, stripeDouble } from './stripe/double.js';
import type { Fault, StripeDouble } from './stripe/double.js';

let stripe: StripeDouble;
let provider: PaymentProvider;
const never = new AbortController().signal;

beforeEach(async () => {
  stripe = await stripeDouble();
  stripe.paid('pi_3TahanIntent00000000001', 2500, 'EUR');
  provider = stripeProvider(stripe);
});
afterEach(() => stripe.close());

/** As the caller does: looks first, then sends, until there is an answer. */
async function untilAnswered(request: RefundRequest, { looks = true } = {}) {
  for (let attempt = 1; attempt <= 20; attempt += 1) {
    try {
      const earlier = looks ? await provider.findRefund(request, never) : null;
      return earlier ?? (await provider.refund(request, never));
    } catch {
      // The next attempt meets a provider that has forgotten the key meanwhile.
      stripe.forgetKeys();
    }
  }
  throw new Error('no answer in 20 attempts');
}

const posts = () => stripe.requests.filter(({ method }) => method === 'POST');

describe('a refund over Stripe', () => {
  it('is sent with its key, its amount and its hold, and found again by its key alone', async () => {
    expect(await provider.findRefund(refund(), never)).toBeNull();
    const answer = await provider.refund(refund(), never);
    expect(answer).toEqual({ outcome: 'EXECUTED', providerRef: stripe.refunds[0]!.id });
    expect(stripe.refunds[0]).toMatchObject({
      amount: 2500,
      metadata: { tahan_key: 'late-1', hold_id: refund().holdId },
      reason: null,
    });
    expect(posts().map(({ key }) => key)).toEqual(['late-1']);
    expect(await provider.findRefund(refund(), never)).toEqual(answer);
    expect(await provider.findRefund(refund({ key: 'late-2' }), never)).toBeNull();
    const agent = stripe.requests[0]!.headers['x-stripe-client-user-agent'];
    expect(agent, 'no telemetry').not.toMatch(/platform|telemetry_id/);
  });

  it('the same key again is answered as before, and sends nothing', async () => {
    const answer = await provider.refund(refund({ amountMinor: 1000 }), never);
    expect(await provider.refund(refund({ amountMinor: 1000 }), never)).toEqual(answer);
    expect(posts().map(({ replayed }) => replayed)).toEqual([false, true]);
    expect(stripe.refunds).toHaveLength(1);
  });

  it.each<[string, Fault]>([
    ['a 500', { fails: 'after' }],
    ['a cut connection', { cut: 'after' }],
    ['"ok" from a proxy', { says: '"ok"' }],
    ['an empty object', { says: '{}' }],
    ['no JSON', { says: '<html>gateway</html>' }],
    ['null', { says: 'null' }],
    ["a proxy's own JSON", { answer: 'proxy_is_down' }],
    ['a cut before it was done', { cut: 'before' }],
    ['a 500 before it was done', { fails: 'before' }],
  ])('F18: %s is no answer: it is thrown, and at the end there is one refund', async (_, fault) => {
    stripe.next(fault);
    await expect(provider.refund(refund({ amountMinor: 1000 }), never)).rejects.toThrow(/Stripe/);
    expect(posts(), 'the package repeats nothing by itself').toHaveLength(1);
    stripe.forgetKeys();
    const answer = await untilAnswered(refund({ amountMinor: 1000 }));
    expect(answer).toEqual({ outcome: 'EXECUTED', providerRef: stripe.refunds[0]!.id });
    expect(stripe.refunds).toHaveLength(1);
  });

  it(
    'F18: 100 refunds at a provider that fails in one request of three and forgets its keys: exactly one each; without the look, more',
    { timeout: 90_000 },
    async () => {
      const roll = dice(18);
      const kinds: Fault[] = [
        ...[{ fails: 'after' as const }, { cut: 'after' as const }, { answer: 'rate_limit' }],
        ...[{ answer: 'lock_timeout' }, { cut: 'before' as const }, { says: '' }],
      ];
      const play = async (name: string, count: number, looks: boolean) => {
        for (let each = 0; each < count; each += 1) {
          stripe.paid(`pi_${name}${each}`, 10_000, 'EUR');
          for (let at = 0; at < 3; at += 1) {
            if (roll.chance(1 / 3)) stripe.next(roll.pick(kinds));
          }
          const request = refund({ paymentId: `pi_${name}${each}`, key: `${name}${each}` });
          const answer = await untilAnswered(request, { looks });
          expect(answer.outcome).toBe('EXECUTED');
        }
        return stripe.refunds.filter((one) => one.payment_intent.startsWith(`pi_${name}`)).length;
      };
      expect(await play('once', 100, true)).toBe(100);
      expect(await play('blind', 20, false)).toBeGreaterThan(20);
    },
  );

  it('F18: "already refunded" after a lost answer and a forgotten key is our own refund: EXECUTED', async () => {
    stripe.next({ cut: 'after' });
    await expect(provider.refund(refund(), never)).rejects.toThrow();
    stripe.forgetKeys();
    const answer = await provider.refund(refund(), never);
    expect(answer).toEqual({ outcome: 'EXECUTED', providerRef: stripe.refunds[0]!.id });
    expect(stripe.refunds).toHaveLength(1);
  });

  it('what somebody else has refunded already is REFUSED', async () => {
    await provider.refund(refund({ key: 'by-hand' }), never);
    const answer = await provider.refund(refund(), never);
    expect(answer).toEqual({ outcome: 'REFUSED', detail: 'charge_already_refunded' });
  });

  it('more than was paid, an unknown payment and a key of another amount are REFUSED, by their codes', async () => {
    const ask = async (fields: Partial<RefundRequest>) => {
      const answer = await provider.refund(refund(fields), never);
      return answer.outcome === 'REFUSED' && answer.detail;
    };
    expect(await ask({ amountMinor: 2501 })).toBe('invalid_request_error: amount');
    const unknown = { paymentId: 'pi_3TahanIntent00000000009', key: 'late-9' };
    expect(await ask(unknown)).toBe('resource_missing');
    expect(await provider.findRefund(refund(unknown), never)).toBeNull();
    await provider.refund(refund({ key: 'part', amountMinor: 700 }), never);
    expect(await ask({ key: 'part', amountMinor: 800 })).toMatch(/^re_\w+ is of 700 eur/);
    expect(stripe.refunds).toHaveLength(1);
  });

  it.each(['charge_disputed', 'idempotency_error'])('%s is REFUSED', async (name) => {
    stripe.next({ answer: name });
    const answer = await provider.refund(refund(), never);
    expect(answer).toEqual({ outcome: 'REFUSED', detail: name });
  });

  it.each([
    ...['lock_timeout', 'idempotency_key_in_use', 'rate_limit', 'balance_insufficient'],
    ...['api_error', 'permission', 'card_error', 'no_such_route'],
  ])('%s may pass: it is thrown, and the next attempt refunds', async (name) => {
    const { status } = recorded<Record<string, { status: number }>>('errors')[name]!;
    stripe.next({ answer: name }, { answer: name });
    const said = new RegExp(`^Stripe: HTTP ${status}(, [a-z_]+)?, req_Tahan\\d+`);
    await expect(provider.findRefund(refund(), never)).rejects.toThrow(said);
    await expect(provider.refund(refund(), never)).rejects.toThrow(said);
    expect(stripe.requests, 'the package repeats nothing by itself').toHaveLength(2);
    expect(await untilAnswered(refund())).toMatchObject({ outcome: 'EXECUTED' });
  });

  it('a wrong key is thrown, without the key, so that correcting it is enough', async () => {
    const wrong = stripeProvider({ ...stripe, apiKey: 'sk_test_wrong0001' });
    for (const ask of ['findRefund', 'refund'] as const) {
      const error = await wrong[ask](refund(), never).catch((thrown: Error) => thrown);
      expect((error as Error).message).toMatch(/HTTP 401.*STRIPE_API_KEY$/);
      expect(everythingIn(error)).not.toMatch(/k_test|wrong/);
    }
    expect(await untilAnswered(refund())).toMatchObject({ outcome: 'EXECUTED' });
  });
});

/** Also what is not enumerable, and the causes. */
function everythingIn(error: unknown): string {
  const { message, stack, cause, ...rest } = error as Error;
  return [message, stack, JSON.stringify(rest), cause && everythingIn(cause)].join('\n');
}
