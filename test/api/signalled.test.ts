import { randomUUID } from 'node:crypto';
import { WorkflowNotFoundError } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { until } from '../workflows/engine.js';
import { moneyBook, paymentOf, settles } from './moneyBook.js';
import { sharedService } from './service.js';
import type { Order } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });
const price = { amount_minor: 1000, currency: 'EUR' };

/** How the payment service tells: it knows the hold's id and, for a signal, Temporal and nothing of ours. */
type Way = 'webhook' | 'signal';
const tell: Record<Way, (holdId: string, paymentId: string, amount: number) => Promise<unknown>> = {
  async webhook(holdId, payment_id, amount_minor) {
    expect((await service.paid(holdId, { payment_id, amount_minor })).status).toBe(200);
  },
  signal: (holdId, paymentId, amountMinor) =>
    service.engine.holds.client.workflow
      .getHandle(`hold:${holdId}`)
      .signal('paymentReceived', { provider: 'default', paymentId, amountMinor, currency: 'EUR' }),
};

async function order(seconds = 600): Promise<Order> {
  const sku = await service.product([1], { price });
  const rest = { path: '/v1/orders', fields: { hold_seconds: seconds } };
  return (await service.checkout<Order>({ [sku]: 1 }, rest)).body;
}

/** What is told of one hold while no worker runs, and what has become of it all when one does. */
async function story(way: Way, amounts: number[], { late = false } = {}) {
  const { hold_id: id } = await order(late ? 1 : 600);
  const payments = amounts.map(() => randomUUID());
  await service.engine.stop();
  try {
    if (late)
      await until('the end has passed', async () => {
        const text = 'select from tahan.holds where id = $1 and expires_at < tahan.tahan_clock()';
        return (await service.shop.query(text, [id])).length === 1;
      });
    for (const [index, paymentId] of payments.entries())
      await tell[way](id, paymentId, amounts[index]!);
  } finally {
    await service.engine.start();
  }
  const hold = await service.becomes(id, late ? 'EXPIRED' : 'CONFIRMED', 60_000);
  const ends = [];
  for (const payment of payments) {
    await until('settled', async () => {
      const { body } = await service.get(`/v1/holds/${id}`);
      const shown = body.payments.find(({ payment_id }) => payment_id === payment);
      return shown?.settlement === 'APPLIED' || shown?.settlement === 'REFUNDED';
    });
    const { settlement, settlement_reason, in_time, amount_minor, refunds } = await paymentOf(
      service,
      payment,
    );
    const states = refunds.map(({ state, calls }) => [state, calls]);
    const back = book.of(payment);
    // A signal is recorded when its turn comes: a second one after the first has confirmed.
    const in_window = settlement_reason === 'SURPLUS' || in_time;
    ends.push({ settlement, settlement_reason, in_window, amount_minor, states, back });
  }
  return { status: hold.status, ends, counts: await service.counts(hold.lines[0]!.sku) };
}

const refunded = (settlement_reason: string, in_window: boolean, amount_minor: number) => ({
  settlement: 'REFUNDED',
  settlement_reason,
  in_window,
  amount_minor,
  states: [['EXECUTED', 1]],
  back: [amount_minor],
});
const applied = {
  settlement: 'APPLIED',
  settlement_reason: null,
  in_window: true,
  amount_minor: 1000,
  states: [],
  back: [],
};
const sold = { status: 'CONFIRMED', counts: { available: 0, held: 0, sold: 1 } };

describe.each<[Way]>([['webhook'], ['signal']])('told by %s', (way) => {
  it('R52: a payment in time confirms', { timeout: 60_000 }, async () => {
    expect(await story(way, [1000])).toEqual({ ...sold, ends: [applied] });
  });

  it('R52, F25: of two payments the first confirms, the second goes back', async () => {
    const ends = [applied, refunded('SURPLUS', true, 1000)];
    expect(await story(way, [1000, 1000])).toEqual({ ...sold, ends });
  });

  it('R52, F23: a wrong amount goes back, and the right one then confirms', async () => {
    const ends = [refunded('MISMATCH', true, 999), applied];
    expect(await story(way, [999, 1000])).toEqual({ ...sold, ends });
  });

  it('R52, B08: a payment that came late goes back', { timeout: 60_000 }, async () => {
    const free = { status: 'EXPIRED', counts: { available: 1, held: 0, sold: 0 } };
    const ends = [refunded('LATE', false, 1000)];
    expect(await story(way, [1000], { late: true })).toEqual({ ...free, ends });
  });
});

it('R52, F17: a signal to a hold that has ended is refused, nothing is recorded, and the webhook takes the same payment', async () => {
  const { hold_id: id } = await order(1);
  await service.becomes(id, 'EXPIRED');
  await service.engine.holds.client.workflow.getHandle(`hold:${id}`).result();
  const payment = randomUUID();
  await expect(tell.signal(id, payment, 1000)).rejects.toThrow(WorkflowNotFoundError);
  expect((await service.get(`/v1/holds/${id}`)).body.payments).toEqual([]);
  await tell.webhook(id, payment, 1000);
  expect(await settles(service, payment, 'REFUNDED')).toMatchObject({ settlement_reason: 'LATE' });
  expect(book.of(payment)).toEqual([1000]);
});
