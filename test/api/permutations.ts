import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { Dice } from '../model/dice.js';
import { dice } from '../model/dice.js';
import { after, beginning, policies, reports, sales } from '../model/settlement.js';
import type { PaymentName, Policy, Sale, Step, World } from '../model/settlement.js';
import { until } from '../workflows/engine.js';
import type { MoneyBook } from './moneyBook.js';
import { succeeded } from './service.js';
import type { Hold, Order, Service } from './service.js';

/** What is drawn: a sale, its policy, and what is reported of it in which order. */
interface Story {
  policy: Policy;
  sale: Sale;
  steps: Step[];
}

function drawn(random: Dice): Story {
  const kinds = Array.from({ length: random.between(1, 5) }, () => random.pick(reports));
  const steps: Step[] = kinds.flatMap((kind) =>
    Array.from({ length: random.between(1, 3) }, () => kind),
  );
  for (let at = steps.length - 1; at > 0; at -= 1) {
    const other = random.between(0, at);
    [steps[at], steps[other]] = [steps[other]!, steps[at]!];
  }
  if (random.chance(0.7)) steps.splice(random.between(0, steps.length), 0, 'passes');
  return { policy: random.pick(policies), sale: random.pick(sales), steps };
}

/** What the workflow does at once after each report: its own part, and the clock's. */
function next(world: World, step: Step, { policy, sale }: Story): World {
  const steps: Step[] = [step, 'work', 'timer'];
  return steps.reduce((before, each) => after(before, each, policy, sale), world);
}

/** So many stories end to end, a batch at a time; each is compared with the model after every report. */
export async function playAll(
  service: Service,
  book: MoneyBook,
  { stories, seed }: { stories: number; seed: number },
): Promise<void> {
  const skus = new Map<string, string>();
  for (const policy of policies)
    for (const sale of sales) {
      const price = sale === 'hold' ? null : { amount_minor: 1000, currency: 'EUR' };
      const settings = { late_payment: policy, ...(price && { price }) };
      skus.set(`${policy} ${sale}`, await service.product([stories * 3], settings));
    }
  /** Looked at once more when all is over: what comes too much comes late. */
  const ends: (() => Promise<void>)[] = [];
  let begun = 0;
  const lane = async () => {
    while (begun < stories) {
      const index = (begun += 1);
      const story = drawn(dice(seed, index));
      const sku = skus.get(`${story.policy} ${story.sale}`)!;
      const name = `TAHAN_SEED=${seed}, story ${index}: ${JSON.stringify(story)}`;
      // A busy machine may need longer than the hold lives for what comes before its end.
      for (let seconds = 3, end; end === undefined; seconds *= 3) {
        end = await play(service, book, story, sku, seconds, name);
        if (end) ends.push(end);
      }
    }
  };
  await Promise.all(Array.from({ length: 20 }, lane));
  for (const end of ends) await end();
}

/** Undefined when the hold ended before all was delivered that was to come before its end. */
async function play(
  service: Service,
  book: MoneyBook,
  story: Story,
  sku: string,
  seconds: number,
  name: string,
): Promise<(() => Promise<void>) | undefined> {
  const { sale, steps } = story;
  const ends = steps.indexOf('passes');
  const lives = ends < 0 ? 600 : ends === 0 ? 1 : seconds;
  const hold = await service.checkout<Hold | Order>(
    { [sku]: 1 },
    {
      fields: { hold_seconds: lives },
      path: sale === 'hold' ? '/v1/holds' : '/v1/orders',
    },
  );
  const id = 'hold_id' in hold.body ? hold.body.hold_id : hold.body.id;
  const ids: Record<PaymentName, string> = { first: randomUUID(), second: randomUUID() };
  let world = beginning;
  for (const [index, step] of steps.entries()) {
    if (step === 'passes') {
      // Of a confirmed hold the end means nothing any more.
      if (world.hold === 'HELD') await service.becomes(id, 'EXPIRED', 60_000);
    } else await report(service, step, id, ids, sale);
    world = next(world, step, story);
    const shown = await settled(service, id, ids, world, () =>
      index < ends ? overdue(service, id) : Promise.resolve(false),
    );
    if (shown === 'too slow') return undefined;
    expect(shown, `${name}, after ${index + 1}`).toEqual(expected(world, ids));
  }
  return async () => {
    expect(await show(service, id, ids), name).toEqual(expected(world, ids));
    for (const which of ['first', 'second'] as const)
      expect(book.of(ids[which]).length, name).toBe(world.payments[which]?.sentBack ? 1 : 0);
  };
}

async function report(
  service: Service,
  step: Step,
  hold_id: string,
  ids: Record<PaymentName, string>,
  sale: Sale,
): Promise<void> {
  const second = step === 'second';
  const status = second ? 'succeeded' : step === 'part' ? 'refunded' : step;
  const amount_minor = second && sale === sales[2] ? 999 : step === 'part' ? 400 : 1000;
  const payment_id = ids[second ? 'second' : 'first'];
  const event = succeeded({ hold_id, payment_id, amount_minor });
  const delivery = { id: `${step}-${payment_id}` };
  const answer = await service.deliver({ ...event, type: `payment.${status}` }, delivery);
  expect(answer.status, answer.text).toBe(200);
}

function expected(world: World, ids: Record<PaymentName, string>) {
  const payments = (['first', 'second'] as const).flatMap((which) => {
    const money = world.payments[which];
    return money ? [[ids[which], money.status, money.inTime, money.settlement]] : [];
  });
  return { hold: world.hold, payments };
}

async function show(service: Service, holdId: string, ids: Record<PaymentName, string>) {
  const { body } = await service.get(`/v1/holds/${holdId}`);
  const payments = (['first', 'second'] as const).flatMap((which) => {
    const found = body.payments.find(({ payment_id }) => payment_id === ids[which]);
    return found ? [[ids[which], found.status, found.in_time, found.settlement]] : [];
  });
  return { hold: body.status, payments };
}

/** What is shown as soon as it is what the model says, or what it is instead after a while. */
async function settled(
  service: Service,
  holdId: string,
  ids: Record<PaymentName, string>,
  world: World,
  late: () => Promise<boolean>,
): Promise<unknown> {
  const wanted = JSON.stringify(expected(world, ids));
  let shown: unknown;
  let slow = false;
  const look = async () => {
    shown = await show(service, holdId, ids);
    if (JSON.stringify(shown) === wanted) return true;
    slow = await late();
    return slow;
  };
  await until('as the model says', look, 15_000).catch(() => undefined);
  return slow ? 'too slow' : shown;
}

async function overdue(service: Service, holdId: string): Promise<boolean> {
  const text = 'select from tahan.holds where id = $1 and expires_at <= tahan.tahan_clock()';
  return (await service.shop.query(text, [holdId])).length === 1;
}
