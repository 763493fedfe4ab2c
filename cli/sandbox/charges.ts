import { randomUUID } from 'node:crypto';
import type { Behaviour, ChargeRequest } from './behaviour.js';
import type { Book, Charge, Event } from './book.js';
import type { Courier } from './courier.js';
import type { ShopView } from './shopView.js';

type Word = 'succeeded' | 'failed' | 'refunded';

/** In the order of sending; `then` in which order it happened. */
const stories: Record<ChargeRequest['story'], { sent: Word[]; happened: Word[] }> = {
  succeed: { sent: ['succeeded'], happened: ['succeeded'] },
  fail: { sent: ['failed'], happened: ['failed'] },
  fail_then_succeed: { sent: ['failed', 'succeeded'], happened: ['failed', 'succeeded'] },
  succeed_then_fail: { sent: ['succeeded', 'failed'], happened: ['failed', 'succeeded'] },
  refund_then_succeed: { sent: ['refunded', 'succeeded'], happened: ['succeeded', 'refunded'] },
};

const usualPrice = { amount_minor: 2500, currency: 'EUR' };

export interface Counter {
  book: Book;
  courier: Courier;
  shop: ShopView;
  webhooks: () => Behaviour['webhooks'];
}

/** Takes the money, and lets the events go: as late, as often and in the order that was asked for. */
export async function charge(
  asked: ChargeRequest,
  { book, courier, shop, webhooks }: Counter,
  signal: AbortSignal,
): Promise<Charge[] | 'HOLD_UNKNOWN' | 'PAYMENT_EXISTS'> {
  const target = { hold_id: asked.hold_id ?? null, order_number: asked.order_number ?? null };
  const seen = await shop.look(target, signal);
  if (asked.late && seen === undefined) return 'HOLD_UNKNOWN';
  const price = { ...usualPrice, ...seen?.total };
  if (asked.amount_minor !== undefined) price.amount_minor = asked.amount_minor;
  if (asked.currency !== undefined) price.currency = asked.currency;
  if (asked.wrong_amount) price.amount_minor += price.amount_minor === 1 ? 1 : -1;
  if (asked.wrong_currency) price.currency = price.currency === 'USD' ? 'EUR' : 'USD';

  // Asked after the await: two calls with the same id must not both find it free.
  if (asked.payment_id !== undefined && book.charges.has(asked.payment_id)) return 'PAYMENT_EXISTS';
  const dueAt = asked.at ?? new Date(Date.now() + (asked.after_ms ?? 0)).toISOString();
  const { sent, happened } = stories[asked.story];
  return Array.from({ length: asked.payments }, () => {
    const made: Charge = {
      payment_id: asked.payment_id ?? `pay_${randomUUID()}`,
      ...target,
      ...price,
      status: sent.includes('succeeded') ? 'succeeded' : 'failed',
      created_at: new Date().toISOString(),
    };
    book.record({ kind: 'charge', charge: made });
    if (sent.includes('refunded')) refundUnasked(made, book);
    courier.send(
      sent.map((type) => ({
        ...eventOf(made, type, made.payment_id, happened.indexOf(type)),
        due: asked.late ? { late: true } : { at: dueAt },
        copies: asked.copies ?? webhooks().copies,
        bad_signature: asked.bad_signature,
        slow_ms: asked.slow_ms,
        repeats: !asked.never_repeats,
      })),
    );
    return made;
  });
}

/** An event as it is told where nothing else was asked for. */
export function eventOf(charge: Charge, type: Word, chain: string, moment = 0): Event {
  const { payment_id, hold_id, order_number, amount_minor, currency } = charge;
  return {
    id: `evt_${randomUUID()}`,
    type: `payment.${type}`,
    payment_id,
    chain,
    body: JSON.stringify({
      type: `payment.${type}`,
      timestamp: new Date(Date.parse(charge.created_at) + moment).toISOString(),
      data: {
        payment_id,
        ...(hold_id === null ? { order_number } : { hold_id }),
        amount_minor,
        currency,
      },
    }),
    due: { at: charge.created_at },
    copies: 1,
    bad_signature: 'never',
    slow_ms: 0,
    repeats: true,
    state: 'waiting',
    tries: [],
  };
}

/** By the provider itself, or by somebody in its dashboard. */
function refundUnasked({ payment_id, amount_minor, currency }: Charge, book: Book): void {
  book.record({
    kind: 'refund',
    refund: {
      refund_id: `re_${randomUUID()}`,
      payment_id,
      key: null,
      amount_minor,
      currency,
      reason: 'by the provider',
      status: 'succeeded',
      executed_at: new Date().toISOString(),
    },
  });
}
