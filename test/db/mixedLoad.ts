import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import type { ClaimRequest } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { conflicts } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { recordPayment } from '../../db/recordPayment.js';
import { dice } from '../model/dice.js';
import type { Dice } from '../model/dice.js';
import { audit } from './audit.js';
import { atOnce } from './rivals.js';
import type { Shop } from './shop.js';

/** What is going on: the products, the latest holds, and how often each answer was given. */
interface Load {
  shop: Shop;
  random: Dice;
  skus: string[];
  /** The latest first. */
  holds: string[];
  calls: number;
  answers: Record<string, number>;
}

type Told = { outcome: string };

interface Action {
  /** How often it is chosen, against the others. */
  weight: number;
  /** What the functions answered, each by its name. */
  play(load: Load, hold: string): Promise<Record<string, Told>>;
}

/** Everything that happens to a shop's units. What a later function does to them is a row more. */
const actions: Record<string, Action> = {
  claim: {
    weight: 45,
    async play({ shop, random, skus, holds, calls }) {
      const lines = { [random.pick(skus)]: random.between(1, 2) };
      if (random.chance(0.4)) lines[random.pick(skus)] ??= 1;
      const request: ClaimRequest = await shop.request(lines, {
        // A limit stops the buyers of a while, so others come.
        buyerId: `buyer-${Math.floor(calls / 300)}-${random.between(1, 12)}`,
        holdSeconds: 1,
        order: random.chance(0.3),
        claimDeadline: await shop.now(3500),
      });
      const first = await claim(shop.db, request);
      if (first.outcome === 'HELD') holds.unshift(request.holdId);
      holds.length = Math.min(holds.length, 60);
      if (random.chance(0.1)) {
        const { outcome } = await claim(shop.db, request);
        expect(outcome).toMatch(/ALREADY|INSUFFICIENT|LIMIT|LATE|HELD/);
      }
      return { claim: first };
    },
  },
  pay: {
    weight: 25,
    async play({ shop, random }, hold) {
      const payment = {
        provider: 'test',
        paymentId: random.chance(0.2) ? `second-${hold}` : hold,
        eventId: null,
        status: 'succeeded' as const,
        holdId: hold,
        orderNumber: null,
        amountMinor: 1,
        currency: 'EUR',
        payload: null,
      };
      const pay = await recordPayment(shop.db, payment);
      return { pay, confirm: await confirm(shop.db, hold, payment) };
    },
  },
  expire: {
    weight: 13,
    play: async ({ shop }, hold) => ({ expire: await expire(shop.db, hold) }),
  },
  cancel: {
    weight: 6,
    play: async ({ shop }, hold) => ({
      cancel: await cancel(shop.db, hold, 'changed my mind', 'buyer'),
    }),
  },
  extend: {
    weight: 6,
    play: async ({ shop }, hold) => ({
      extend: await extend(shop.db, hold, 1, randomUUID(), 'buyer'),
    }),
  },
  adjust: {
    weight: 5,
    async play({ shop, random, skus }) {
      const change = {
        sku: random.pick(skus),
        bin: `b${random.between(1, 3)}`,
        // About as many come as are sold, so the shelves are scarce and never empty for good.
        delta: random.pick([-2, -1, 1, 4, 10]),
        reason: 'count',
        actor: 'operator',
        requestId: randomUUID(),
        reference: null,
      };
      return { adjust: await adjust(shop.db, change) };
    },
  },
};
const drawn = Object.entries(actions).flatMap(([name, { weight }]) =>
  Array<string>(weight).fill(name),
);

/** A load in which one of these never came up proves nothing. */
const vital = [
  'claim HELD',
  'claim INSUFFICIENT_STOCK',
  'confirm CONFIRMED',
  'expire EXPIRED',
  'cancel CANCELLED',
  'extend EXTENDED',
  'adjust DONE',
  'adjust INSUFFICIENT_STOCK',
];

/**
 * Plays what the dice say, so many calls by 20 clients at once, on three products of three bins each.
 * Then every count must equal its records, with nothing repaired in between, and no call have met a
 * deadlock. Holds last 1 s, of a clock that runs 120 ms ahead every ten calls.
 */
export async function mixedLoad(shop: Shop, calls: number): Promise<Record<string, number>> {
  const seed = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000);
  const by = {
    latePayment: 'accept_if_available' as const,
    maxExtensions: 5,
    holdSeconds: 1,
    maxHoldSeconds: 30,
  };
  const skus = [
    await shop.product([6, 6, 6], { ...by, perBuyerLimit: 4, safetyStock: [1] }),
    await shop.product([5, 5, 5], { ...by, perBuyerLimit: 3 }),
    await shop.product([4, 4, 4], { ...by, allocation: 'spread', latePayment: 'refund' }),
  ];
  const load: Load = { shop, random: dice(seed), skus, holds: [], calls: 0, answers: {} };
  const { random, holds, answers } = load;
  const before = conflicts.repeated;

  await atOnce(20, async () => {
    while (load.calls < calls) {
      load.calls += 1;
      const runsAhead = load.calls % 10 === 0;
      const known = holds[random.between(0, Math.min(holds.length, random.pick([8, 60])) - 1)];
      const action = actions[known === undefined ? 'claim' : random.pick(drawn)]!;
      for (const [name, { outcome }] of Object.entries(await action.play(load, known!))) {
        const answer = `${name} ${outcome}`;
        answers[answer] = (answers[answer] ?? 0) + 1;
      }
      if (runsAhead)
        await shop.query(`update tahan.test_clock set shift = shift + interval '120 milliseconds'`);
    }
  });

  // Every pending payment gets its confirm, as the workflow would ask; then the books must agree.
  const pending = await shop.query<{ payment_id: string; hold_id: string }>(
    `select payment_id, hold_id from tahan.payments where status = 'succeeded' and settlement is null`,
  );
  for (const { payment_id: paymentId, hold_id } of pending)
    await confirm(shop.db, hold_id, { provider: 'test', paymentId });
  expect({ seed, violations: await audit(shop.url) }).toEqual({ seed, violations: {} });
  const money = await shop.query(
    `select from tahan.payments where status = 'succeeded'
       and (settlement is null or settlement not in ('APPLIED', 'ACCEPTED_LATE', 'REFUND_DUE'))`,
  );
  expect({ seed, undecided: money.length }).toEqual({ seed, undecided: 0 });
  expect({ seed, conflicts: conflicts.repeated - before }).toEqual({ seed, conflicts: 0 });
  for (const one of vital) expect(answers[one] ?? 0, `${one}, seed ${seed}`).toBeGreaterThan(0);
  return answers;
}
