import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import { conflicts } from '../../db/database.js';
import { audit } from '../db/audit.js';
import { dice } from '../model/dice.js';
import type { Dice } from '../model/dice.js';
import { handleOf, until } from '../workflows/engine.js';
import type { MoneyBook } from './moneyBook.js';
import { atOnce, defectsOf, succeeded } from './service.js';
import type { Answer, Hold, Problem, Service } from './service.js';

/** What is going on: the products, the latest holds, and how often each answer was given. */
interface Load {
  service: Service;
  random: Dice;
  skus: string[];
  /** The latest first. */
  holds: string[];
  /** Of every payment that was taken. */
  payments: Set<string>;
  requests: number;
  slowestMs: number;
  answers: Record<string, number>;
  defects: string[];
}

interface Action {
  /** How often it is chosen, against the others. */
  weight: number;
  play(load: Load, hold: string): Promise<Answer<unknown>[]>;
}

const onHold = ({ service }: Load, hold: string, what: string, body: object) =>
  service.post(`/v1/holds/${hold}/${what}`, body, { idempotencyKey: randomUUID() });

/** Everything that a shop does with its units. What a later route does to them is a row more. */
const actions: Record<string, Action> = {
  claim: {
    weight: 45,
    async play({ service, random, skus, holds, requests }) {
      const lines = { [random.pick(skus)]: random.between(1, 2) };
      if (random.chance(0.4)) lines[random.pick(skus)] ??= 1;
      const answer = await service.attempt<Hold>(lines, {
        // A limit stops the buyers of a while, so others come.
        buyer: `buyer-${Math.floor(requests / 100)}-${random.between(1, 12)}`,
        fields: { hold_seconds: 3 },
      });
      if (answer.status === 201) holds.unshift(answer.body.id);
      holds.length = Math.min(holds.length, 40);
      return [answer];
    },
  },
  pay: {
    weight: 25,
    async play({ service, random, payments }, hold_id) {
      const payment_id = random.chance(0.2) ? `second-${hold_id}` : hold_id;
      const event = succeeded({ hold_id, payment_id });
      // Its sender may not wait for the first answer.
      const answers: Answer<unknown>[] = [];
      await atOnce(random.pick([1, 1, 2]), async () => {
        // Its sender repeats it until it is taken.
        for (let status = 503; status === 503; status = answers.at(-1)!.status)
          answers.push(await service.deliver(event, { id: payment_id }));
      });
      if (answers.some(({ status }) => status === 200)) payments.add(payment_id);
      return answers;
    },
  },
  cancel: {
    weight: 12,
    play: async (load, hold) => [await onHold(load, hold, 'cancel', { reason: 'changed my mind' })],
  },
  extend: {
    weight: 10,
    play: async (load, hold) => [await onHold(load, hold, 'extend', { seconds: 1 })],
  },
  adjust: {
    weight: 8,
    async play({ service, random, skus }) {
      const path = `/v1/products/${random.pick(skus)}/bins/b${random.between(1, 3)}/adjustments`;
      // About as many come as are sold, so the shelves are scarce and never empty for good.
      const body = { delta: random.pick([-2, -1, 1, 4, 8]), reason: 'count' };
      return [await service.post(path, body, { key: service.operatorKey })];
    },
  },
};
const drawn = Object.entries(actions).flatMap(([name, { weight }]) =>
  Array<string>(weight).fill(name),
);

/** A load in which one of these never came up proves nothing. */
const vital = [
  'claim 201',
  'claim 409 INSUFFICIENT_STOCK',
  'pay 200 RECORDED',
  'pay 200 DUPLICATE',
  'cancel 200 CANCELLED',
  'extend 200 HELD',
  'adjust 200',
];

export interface Played {
  seed: number;
  requests: number;
  slowestMs: number;
  answers: Record<string, number>;
  holds: Record<string, number>;
  payments: Record<string, number>;
  /** From the end of a hold to the end of its workflow, at most. */
  longestRunMs: number;
}

/**
 * Plays what the dice say for so long, with so many clients, on three products of three bins each and
 * with holds of 3 s, which their timers end. Then it waits for the last end, repairs nothing, and
 * compares.
 */
export async function mixedLoad(
  service: Service,
  book: MoneyBook,
  { seconds, clients }: { seconds: number; clients: number },
): Promise<Played> {
  const seed = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000);
  const accepts = { late_payment: 'accept_if_available', max_extensions: 5 };
  const load: Load = {
    service,
    random: dice(seed),
    skus: [
      await service.product([6, 6, 6], { ...accepts, per_buyer_limit: 4, safety_stock: [1] }),
      await service.product([5, 5, 5], { ...accepts, per_buyer_limit: 3 }),
      await service.product([4, 4, 4], { allocation: 'spread', max_extensions: 5 }),
    ],
    holds: [],
    payments: new Set(),
    requests: 0,
    slowestMs: 0,
    answers: {},
    defects: [],
  };
  const { random, holds, answers } = load;
  const before = conflicts.repeated;
  const endsAt = performance.now() + seconds * 1000;

  const strays: string[] = [];
  const watching = watch(service, endsAt, strays);
  await atOnce(clients, async () => {
    // On a slow machine it goes on until there is something to compare.
    while (performance.now() < endsAt || load.requests < 200) {
      const known = holds[random.between(0, Math.min(holds.length, random.pick([8, 40])) - 1)];
      const name = known === undefined ? 'claim' : random.pick(drawn);
      load.requests += 1;
      for (const answer of await actions[name]!.play(load, known!)) {
        const said = `${name} ${sayOf(answer)}`;
        answers[said] = (answers[said] ?? 0) + 1;
        load.defects.push(...defectsOf([answer]));
        load.slowestMs = Math.max(load.slowestMs, answer.took);
      }
    }
  });
  await watching;
  expect({ seed, strays }).toEqual({ seed, strays: [] });

  const { shop } = service;
  const rows = (text: string) => shop.query<{ is: string; count: number }>(text);
  await until('nothing is held or due', () => quiet(service), 60_000);
  const longestRunMs = await lastRun(service);
  expect({ seed, violations: await audit(shop.url) }).toEqual({ seed, violations: {} });
  expect({ seed, conflicts: conflicts.repeated - before }).toEqual({ seed, conflicts: 0 });
  expect({ seed, defects: load.defects }).toEqual({ seed, defects: [] });
  // Whatever was taken is there, applied or sent back, and nothing was sent back twice.
  const settled = await shop.query<{ id: string; settlement: string }>(
    'select payment_id as id, settlement from tahan.payments',
  );
  expect(new Set(settled.map(({ id }) => id))).toEqual(load.payments);
  const sent = (settlement: string) => (settlement === 'REFUNDED' ? [1000] : []);
  const wrong = settled.filter(
    ({ id, settlement }) =>
      !['APPLIED', 'ACCEPTED_LATE', 'REFUNDED'].includes(settlement) ||
      String(book.of(id)) !== String(sent(settlement)),
  );
  expect({ seed, wrong }).toEqual({ seed, wrong: [] });
  for (const one of vital) expect(answers[one] ?? 0, `${one}, seed ${seed}`).toBeGreaterThan(0);
  const tally = (found: { is: string; count: number }[]) =>
    Object.fromEntries(found.map(({ is, count }) => [is, count]));
  const ends = tally(
    await rows('select status as is, count(*)::int from tahan.holds group by status'),
  );
  for (const end of ['CONFIRMED', 'CANCELLED', 'EXPIRED'])
    expect(ends[end] ?? 0, `${end}, seed ${seed}`).toBeGreaterThan(0);
  return {
    seed,
    requests: load.requests,
    slowestMs: Math.round(load.slowestMs),
    answers,
    holds: ends,
    payments: tally(
      await rows('select settlement as is, count(*)::int from tahan.payments group by settlement'),
    ),
    longestRunMs,
  };
}

function sayOf({ status, body }: Answer<unknown>): string {
  const { code, outcome, status: of } = body as Problem & { outcome?: string; status?: string };
  const word = code ?? outcome ?? (status === 200 ? of : undefined);
  return word === undefined ? String(status) : `${status} ${word}`;
}

/** I6, all the time: whoever is HELD has a running workflow. */
async function watch(service: Service, endsAt: number, strays: string[]): Promise<void> {
  const text = `select id from tahan.holds where status = 'HELD' order by created_at limit 20`;
  const held = `select from tahan.holds where status = 'HELD' and id = $1`;
  while (performance.now() < endsAt) {
    for (const { id } of await service.shop.query<{ id: string }>(text)) {
      if (await isRunning(service, id)) continue;
      // It may have ended between the two looks.
      if ((await service.shop.query(held, [id])).length > 0) strays.push(id);
    }
    await pause(500);
  }
}

async function isRunning(service: Service, id: string): Promise<boolean> {
  return (await handleOf(service.engine, id).describe()).status.name === 'RUNNING';
}

async function quiet({ shop }: Service): Promise<boolean> {
  const [row] = await shop.query<{ open: number }>(
    `select (select count(*) from tahan.holds where status = 'HELD')::int
       + (select count(*) from tahan.payments
          where settlement is null or settlement = 'REFUND_DUE')::int as open`,
  );
  return row!.open === 0;
}

/**
 * I6, at the end: 5 s after the last of them, no workflow of an ended hold runs any more. It answers
 * with the longest time that one ran on: under load its last messages wait for their turn.
 */
async function lastRun(service: Service): Promise<number> {
  const ended = await service.shop.query<{ id: string; closed: number }>(
    `select id, (extract(epoch from closed_at) * 1000)::float8 as closed from tahan.holds
     where status <> 'REJECTED'`,
  );
  const endsAt = Date.now() + 5_000;
  const ran = [];
  for (const { id, closed } of ended) {
    const left = Math.max(0, endsAt - Date.now());
    await until(`the run of ${id} is over`, async () => !(await isRunning(service, id)), left);
    const { closeTime } = await handleOf(service.engine, id).describe();
    ran.push(closeTime!.getTime() - closed);
  }
  return Math.round(Math.max(...ran));
}
