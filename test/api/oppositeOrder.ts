import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { conflicts } from '../../db/database.js';
import { atOnce, defectsOf, statuses, succeeded } from './service.js';
import type { Answer, Hold, Order, Service } from './service.js';

/**
 * Orders of the same two products, half as (a, b) and half as (b, a), out of two bins each. Odd ones
 * are paid, by two deliveries of one event, with a cancel of the same hold at the same moment; even
 * ones are cancelled; all are extended meanwhile, and the bins of b and then of a get a unit more now
 * and then. What it answers with: how long the slowest took, and how many had to be repeated.
 */
export async function oppositeOrder(
  service: Service,
  { count, buyers }: { count: number; buyers: number },
): Promise<{ slowestMs: number; repeated: number }> {
  const settings = { price: { amount_minor: 500, currency: 'EUR' } };
  const [a, b] = [
    await service.product([count * 1.25, count * 1.25], settings),
    await service.product([count * 1.25, count * 1.25], settings),
  ];
  await slowLocks(service);
  const before = conflicts.repeated;
  const answers: Answer<unknown>[] = [];
  /** As a shop does it: the same question with the same key, until it is answered. */
  const ask = async <T>(question: () => Promise<Answer<T>>): Promise<Answer<T>> => {
    for (;;) {
      const answer = await question();
      answers.push(answer);
      if ((answer.status !== 503 && answer.status !== 202) || defectsOf([answer]).length > 0)
        return answer;
    }
  };
  const change = (id: string, what: string, body: object) => {
    const idempotencyKey = randomUUID();
    return ask(() => service.post<Hold>(`/v1/holds/${id}/${what}`, body, { idempotencyKey }));
  };

  const order = async (index: number) => {
    // Each pair of an odd and an even one comes in the same order of products.
    const skus = index % 4 < 2 ? [a, b] : [b, a];
    const lines = skus.map((sku) => ({ sku, quantity: 1 }));
    const of = { path: '/v1/orders', buyer: `buyer-${index}`, key: randomUUID() };
    const made = await ask(() => service.attempt<Order>(lines, of));
    if (made.status >= 300) return made;
    const { hold_id: id } = made.body;
    const extended = change(id, 'extend', { seconds: 60 });
    if (index % 2 === 0) {
      const [cancelled] = await Promise.all([
        change(id, 'cancel', { reason: 'changed my mind' }),
        extended,
      ]);
      expect([cancelled.status, cancelled.body.status]).toEqual([200, 'CANCELLED']);
      return made;
    }
    const event = succeeded({ hold_id: id, payment_id: id, amount_minor: 1000 });
    const pay = () => ask(() => service.deliver(event, { id }));
    const first = await pay();
    expect(first.status).toBe(200);
    const [again, cancelled] = await Promise.all([
      pay(),
      change(id, 'cancel', { reason: 'too slow' }),
      extended,
    ]);
    expect([again.status, again.body.outcome]).toEqual([200, 'DUPLICATE']);
    expect(cancelled.status, 'a cancel after the money').toBe(409);
    return made;
  };
  const adjust = async (index: number) => {
    const [sku, bin] = [index % 2 ? a : b, index % 4 < 2 ? 'b2' : 'b1'];
    const path = `/v1/products/${sku}/bins/${bin}/adjustments`;
    const body = { delta: 1, reason: 'count' };
    const of = { key: service.operatorKey, idempotencyKey: randomUUID() };
    return ask(() => service.post(path, body, of));
  };
  const [made, adjusted] = await Promise.all([
    atOnce(buyers, async (buyer) => {
      const own = [];
      for (let index = buyer; index < count; index += buyers) own.push(await order(index));
      return own;
    }),
    atOnce(4, async (lane) => {
      const own = [];
      for (let nth = 0; nth < 5; nth += 1) own.push(await adjust(lane + 4 * nth));
      return own;
    }),
  ]);

  expect(defectsOf(answers)).toEqual([]);
  // A repeat of one that was told 202 finds its hold: 200.
  const { 200: replayed = 0, 201: created = 0, ...others } = statuses(made.flat());
  expect([created + replayed, others]).toEqual([count, {}]);
  expect(statuses(adjusted.flat())).toEqual({ 200: 20 });
  expect(conflicts.repeated - before).toBe(0);
  const paid = made.flatMap((own) => own.map(({ body }) => body.hold_id));
  const ends = await Promise.all(
    paid.map(async (id) => (await service.get(`/v1/holds/${id}`)).body.status),
  );
  const open = paid.filter((_, index) => ends[index] === 'HELD');
  for (const id of open) await service.becomes(id, 'CONFIRMED');
  for (const sku of [a, b])
    expect(await service.counts(sku)).toEqual({
      available: 2.5 * count + 10 - count / 2,
      held: 0,
      sold: count / 2,
    });
  return {
    slowestMs: Math.round(Math.max(...answers.map(({ took }) => took))),
    repeated: answers.filter(({ status }) => status === 503 || status === 202).length,
  };
}

/** After each lock of a bin 5 ms pass, so that those who lock several meet one another. */
async function slowLocks({ shop }: Service): Promise<void> {
  const [found] = await shop.query<{ text: string }>(
    `select pg_get_functiondef('tahan.lock_bins'::regproc) as text`,
  );
  const slow = found!.text.replace('for no key update;', '$& perform pg_sleep(0.005);');
  expect(slow).not.toBe(found!.text);
  await shop.query(slow);
}
