import type { z } from 'zod';
import type { chargeRequest } from '../../cli/sandbox/behaviour.js';

/** A hold to be made, and the payments that will come for it. */
export interface PlannedHold {
  product: number;
  /** With a price, so that only its exact total confirms it. */
  order: boolean;
  /** Its end, in ms after the moment that everything is arranged around. */
  endsAt: number;
  payments: PlannedPayment[];
}

export interface PlannedPayment {
  /** When its webhook is sent, in ms after that moment. */
  sentAt: number;
  ask: Pick<
    z.input<typeof chargeRequest>,
    'story' | 'copies' | 'wrong_amount' | 'never_repeats' | 'slow_ms'
  >;
}

export const policies = ['refund', 'accept_if_available'] as const;
export const productCount = 6;

/**
 * Six holds for ten payments: some holds get two, some more. All webhooks are sent within 2 s around
 * the deadline. Half of the holds end within that second too. The webhooks are sent faster than this
 * service takes them in, most of all while nobody listens, so the other half ends in the time that
 * this needs: what is sent around the deadline of the first then arrives around that of the others.
 */
export function plan(payments: number, roll: () => number): PlannedHold[] {
  const between = (low: number, high: number) => low + roll() * (high - low);
  const chance = (share: number) => roll() < share;
  const holds: PlannedHold[] = Array.from({ length: Math.ceil(payments * 0.6) }, (_, index) => ({
    product: index % productCount,
    order: chance(0.5),
    endsAt: chance(0.5) ? between(-500, 500) : between(500, 12_000 + payments * 25),
    payments: [],
  }));
  for (let made = 0; made < payments; made += 1) {
    const hold = holds[made < holds.length ? made : Math.floor(roll() * holds.length)]!;
    const story = chance(0.1)
      ? 'fail_then_succeed'
      : chance(0.06)
        ? 'succeed_then_fail'
        : 'succeed';
    hold.payments.push({
      sentAt: between(-1000, 1000),
      ask: {
        story,
        copies: chance(0.1) ? 3 : 1,
        wrong_amount: hold.order && chance(0.15),
        never_repeats: chance(0.1),
        slow_ms: chance(0.05) ? 300 : 0,
      },
    });
  }
  return holds;
}
