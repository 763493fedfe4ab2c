import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import type { PaymentProvider, RefundRequest } from '../../activities/payments/provider.js';
import type * as schemas from '../../api/schemas.js';
import { until } from '../workflows/engine.js';
import { sharedService, succeeded } from './service.js';
import type { Hold, Order, Page } from './service.js';

type Payment = z.infer<typeof schemas.paymentRecord>;

/** The provider's own book: what it has really sent back. */
const book: RefundRequest[] = [];
/** How many calls still execute the refund and then fail to say so. */
let executeThenFail = 0;
let refuse = false;
const provider: PaymentProvider = {
  findRefund(request) {
    const found = book.some(({ key }) => key === request.key);
    return Promise.resolve(found ? { outcome: 'EXECUTED', providerRef: `r-${request.key}` } : null);
  },
  refund(request) {
    if (refuse) return Promise.resolve({ outcome: 'REFUSED', detail: 'charge_disputed' });
    book.push(request);
    if (executeThenFail-- > 0) return Promise.reject(new Error('the answer was lost'));
    return Promise.resolve({ outcome: 'EXECUTED', providerRef: `r-${request.key}` });
  },
};
const service = sharedService({ provider });

beforeEach(() => {
  book.length = 0;
  executeThenFail = 0;
  refuse = false;
});

const operator = () => ({ key: service.operatorKey });
const pathOf = (id: string) => `/v1/payments/default/${id}`;

async function becomes(id: string, wanted: Partial<Payment>): Promise<Payment> {
  let shown!: Payment;
  await until(JSON.stringify(wanted), async () => {
    shown = (await service.get<Payment>(pathOf(id), operator())).body;
    return Object.entries(wanted).every(([name, is]) => shown[name as keyof Payment] === is);
  });
  return shown;
}

async function expired(settings: Record<string, unknown> = {}): Promise<Hold> {
  const sku = await service.product([1], settings);
  const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } });
  return service.becomes(hold.id, 'EXPIRED');
}

async function paidLate(hold: Hold, data: object = {}): Promise<string> {
  const id = randomUUID();
  expect((await service.paid(hold.id, { payment_id: id, ...data })).status).toBe(200);
  return id;
}

const decide = (id: string, decision: string, key?: string) =>
  service.post<Payment>(
    `${pathOf(id)}/decision`,
    { decision, reason: 'a good customer' },
    { ...operator(), ...(key && { idempotencyKey: key }) },
  );

describe('money that must go back goes back once', () => {
  it('B08, R11: a late payment is refunded although the answer of the first call is lost, and an operator sees how', async () => {
    const hold = await expired();
    executeThenFail = 1;
    const id = await paidLate(hold, { amount_minor: 2500 });
    const shown = await becomes(id, { settlement: 'REFUNDED' });
    expect(book).toMatchObject([
      { paymentId: id, amountMinor: 2500, currency: 'EUR', reason: 'LATE', holdId: hold.id },
    ]);
    expect(shown).toMatchObject({ in_time: false, settlement_reason: 'LATE', hold_id: hold.id });
    expect(shown.refunds).toMatchObject([
      { cause: 'settlement', state: 'EXECUTED', amount_minor: 2500, currency: 'EUR', calls: 2 },
    ]);
    expect(shown.refunds[0]!.key).toBe(book[0]!.key);
    expect(shown.events).toMatchObject([{ type: 'succeeded', deliveries: 1 }]);
    expect((await service.get(`/v1/holds/${hold.id}`)).body.status).toBe('EXPIRED');
  });

  it('F25, F23: a second payment, and a wrong amount for an order, are refunded; the hold is confirmed by the right one', async () => {
    const sku = await service.product([5], { price: { amount_minor: 2500, currency: 'EUR' } });
    const { body: order } = await service.checkout<Order>({ [sku]: 1 }, { path: '/v1/orders' });
    const pay = (amount_minor: number, id: string = randomUUID()) =>
      service.paid(order.hold_id, { amount_minor, payment_id: id }).then(() => id);
    const [nothing, wrong] = [await pay(0), await pay(1)];
    await pay(2500);
    await service.becomes(order.hold_id, 'CONFIRMED');
    const second = await pay(2500);
    for (const [id, settlement_reason] of [
      [nothing, 'MISMATCH'],
      [wrong, 'MISMATCH'],
      [second, 'SURPLUS'],
    ] as const)
      await becomes(id, { settlement: 'REFUNDED', settlement_reason });
    // Of nothing there is nothing to send.
    expect(book.map(({ paymentId, amountMinor }) => [paymentId, amountMinor])).toEqual([
      [wrong, 1],
      [second, 2500],
    ]);
    expect(await service.counts(sku)).toEqual({ available: 4, held: 0, sold: 1 });
  });

  it('F18: events that come again and again, and payment.refunded in the end, send nothing twice', async () => {
    const hold = await expired();
    const event = succeeded({ hold_id: hold.id, payment_id: randomUUID() });
    const { payment_id: id } = (event as { data: { payment_id: string } }).data;
    const deliver = () => service.deliver(event, { id: `e-${id}` });
    expect((await Promise.all([deliver(), deliver(), deliver()])).map((a) => a.status)).toEqual([
      200, 200, 200,
    ]);
    await becomes(id, { settlement: 'REFUNDED' });
    expect((await deliver()).body.outcome).toBe('DUPLICATE');
    await service.deliver({ ...event, type: 'payment.refunded' });
    await becomes(id, { settlement: 'REFUNDED', status: 'refunded' });
    expect(book).toHaveLength(1);
  });

  it('F5: a refund whose workflow was terminated is sent when the event comes again', async () => {
    const hold = await expired();
    const event = succeeded({ hold_id: hold.id, payment_id: randomUUID() });
    const { payment_id: id } = (event as { data: { payment_id: string } }).data;
    executeThenFail = 1;
    await service.deliver(event, { id: `e-${id}` });
    const called = await becomes(id, { settlement: 'REFUND_DUE' });
    await until('called', () => book.length === 1);
    const { workflow } = service.engine.holds.client;
    await workflow.getHandle(`refund:default:${id}:settlement`).terminate();
    expect(called.refunds.length).toBeLessThan(2);
    await service.deliver(event, { id: `e-${id}` });
    await becomes(id, { settlement: 'REFUNDED' });
    expect(book).toHaveLength(1);
  });

  it('a refund that the provider refuses is listed for the operator, who may ask for it again', async () => {
    refuse = true;
    const id = await paidLate(await expired());
    await becomes(id, { settlement: 'NEEDS_REVIEW' });
    const { body } = await service.get<Page<Payment>>('/v1/payments?refund=REFUSED', operator());
    expect(body.items.filter(({ payment_id }) => payment_id === id)).toMatchObject([
      { refunds: [{ state: 'REFUSED', detail: 'charge_disputed' }] },
    ]);
    refuse = false;
    expect((await decide(id, 'refund')).status).toBe(200);
    await becomes(id, { settlement: 'REFUNDED' });
    expect(book).toHaveLength(1);
  });
});

describe('a payment that needs a review', () => {
  const review = { late_payment: 'review' };

  it('R11: accepted by an operator it confirms the hold; its key repeated answers the same, another decision is refused', async () => {
    const hold = await expired(review);
    const id = await paidLate(hold);
    expect(await becomes(id, { settlement: 'NEEDS_REVIEW' })).toMatchObject({ review: null });
    const answer = await decide(id, 'accept', 'once');
    expect([answer.status, answer.body.settlement]).toEqual([200, 'ACCEPTED_LATE']);
    expect(answer.body.review).toMatchObject({ decision: 'accept', actor: 'operator:ann' });
    await service.becomes(hold.id, 'CONFIRMED');
    expect((await decide(id, 'accept', 'once')).status).toBe(200);
    const reused = await decide(id, 'refund', 'once');
    expect([reused.status, reused.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    const over = await decide(id, 'refund');
    expect([over.status, over.body.code]).toEqual([409, 'PAYMENT_NOT_IN_REVIEW']);
    expect(book).toEqual([]);
  });

  it('R11: refused by an operator it is refunded', async () => {
    const id = await paidLate(await expired(review));
    const answer = await decide(id, 'refund');
    expect([answer.status, answer.body.settlement_reason]).toEqual([200, 'REVIEWED']);
    await becomes(id, { settlement: 'REFUNDED' });
    expect(book).toMatchObject([{ paymentId: id, reason: 'REVIEWED' }]);
  });

  it('what can not be accepted now is 409 with the reason, and stays in review', async () => {
    const hold = await expired(review);
    const id = await paidLate(hold);
    const { sku } = hold.lines[0]!;
    const rival = await service.hold({ [sku]: 1 });
    const short = await decide(id, 'accept');
    expect([short.status, short.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    await service.post(`/v1/holds/${rival.id}/cancel`, { reason: 'gone' });
    expect((await decide(id, 'accept')).status).toBe(200);
    await service.becomes(hold.id, 'CONFIRMED');
  });

  it('the list is for operators, by settlement, page by page; a payment that is not there is 404', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) ids.push(await paidLate(await expired(review)));
    const mine: string[] = [];
    let cursor: string | null = null;
    do {
      const path: string = `/v1/payments?settlement=NEEDS_REVIEW&limit=2${cursor ? `&cursor=${cursor}` : ''}`;
      const answer = await service.get<Page<Payment>>(path, operator());
      expect(answer.status).toBe(200);
      const body: Page<Payment> = answer.body;
      mine.push(...body.items.map(({ payment_id }) => payment_id));
      cursor = body.next_cursor;
    } while (cursor !== null);
    expect(mine.filter((id) => ids.includes(id))).toEqual([...ids].reverse());
    const missing = await service.get(pathOf('nobody'), operator());
    expect([missing.status, missing.body.code]).toEqual([404, 'PAYMENT_NOT_FOUND']);
    const undecided = await decide('nobody', 'accept');
    expect([undecided.status, undecided.body.code]).toEqual([404, 'PAYMENT_NOT_FOUND']);
    const cursorless = await service.get('/v1/payments?cursor=x', operator());
    expect(cursorless.status).toBe(400);
    for (const id of ids) await decide(id, 'refund');
  });
});

describe('events that nobody acts on', () => {
  it('B09: one for a hold that is not there is kept for the operator; one of another type is kept and ignored', async () => {
    const [lost, id] = [randomUUID(), randomUUID()];
    const unmatched = await service.paid(lost, { payment_id: id }, `e-${id}`);
    expect(unmatched.status).toBe(404);
    const { body } = await service.get<Page<z.infer<typeof schemas.unmatchedEvent>>>(
      '/v1/payments/unmatched',
      operator(),
    );
    expect(body.items.find(({ event_id }) => event_id === `e-${id}`)).toMatchObject({
      payment_id: id,
      type: 'succeeded',
      deliveries: 1,
    });
    const other = { type: 'payout.created', amount: 5 };
    const ignored = await service.deliver(other, { id: `o-${id}` });
    expect([ignored.status, ignored.body.outcome]).toEqual([200, 'IGNORED']);
    expect(
      await service.shop.query(
        'select type, payload, hold_id from tahan.payment_events where event_id = $1',
        [`o-${id}`],
      ),
    ).toEqual([{ type: 'payout.created', payload: other, hold_id: null }]);
  });

  it('S5: money of Stripe is not moved by whoever signs other events', async () => {
    const hold = await expired();
    const answer = await service.paid(hold.id, { provider: 'Stripe' });
    expect([answer.status, answer.body.code]).toEqual([400, 'INVALID_REQUEST']);
  });
});
