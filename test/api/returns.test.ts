import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, inject, it } from 'vitest';
import type { z } from 'zod';
import type * as schemas from '../../api/schemas.js';
import { returnSale } from '../../db/returnSale.js';
import { whenWaiting } from '../db/rivals.js';
import { until } from '../workflows/engine.js';
import { startApi } from './killed.js';
import { moneyBook, paymentOf } from './moneyBook.js';
import { atOnce, sharedService, statuses, succeeded } from './service.js';
import type { Answer, Order } from './service.js';

type Returned = z.infer<typeof schemas.returned>;

const book = moneyBook();
/** How the provider answers while it does not simply do what it is asked. */
let trouble: 'none' | 'refuses' | 'executes and does not say so' = 'none';
const service = sharedService({
  provider: {
    findRefund: (request, signal) => book.findRefund(request, signal),
    async refund(request, signal) {
      if (trouble === 'refuses') return { outcome: 'REFUSED', detail: 'closed' };
      const answer = await book.refund(request, signal);
      if (trouble !== 'none') {
        trouble = 'none';
        throw new Error('the answer was lost');
      }
      return answer;
    },
  },
});

beforeEach(() => {
  trouble = 'none';
});

const price = { price: { amount_minor: 500, currency: 'EUR' } };
const operator = () => ({ key: service.operatorKey });
const said = ({ status, body }: Answer<unknown>) => [status, body.code];

/** An order of so many units, paid. */
async function sold(sku: string, quantity: number): Promise<{ id: string; paymentId: string }> {
  const { body: order } = await service.checkout<Order>(
    { [sku]: quantity },
    { path: '/v1/orders' },
  );
  const { hold_id: id, total } = order;
  return { id, paymentId: await pay(id, total?.amount_minor ?? 1000) };
}

async function pay(id: string, amount_minor: number): Promise<string> {
  const paymentId = randomUUID();
  expect((await service.paid(id, { amount_minor, payment_id: paymentId })).status).toBe(200);
  await service.becomes(id, 'CONFIRMED');
  return paymentId;
}

function giveBack(id: string, rest: object = {}, key?: string): Promise<Answer<Returned>> {
  const body = { reason: 'does not fit', restock: true, ...rest };
  const sent = { ...operator(), ...(key !== undefined && { idempotencyKey: key }) };
  return service.post<Returned>(`/v1/holds/${id}/return`, body, sent);
}

async function refunded(paymentId: string, state: string, count = 1) {
  await until(`${count} refunds are ${state}`, async () => {
    const { refunds } = await paymentOf(service, paymentId);
    return refunds.filter((one) => one.state === state).length === count;
  });
  return (await paymentOf(service, paymentId)).refunds;
}

describe('what was sold comes back', () => {
  it('R09: all of it: the units are sellable again, and the money goes back once although the answer of the first call is lost', async () => {
    const sku = await service.product([2, 2], price);
    const { id, paymentId } = await sold(sku, 3);
    trouble = 'executes and does not say so';
    const answer = await giveBack(id, {}, 'all');
    expect(answer.status, answer.text).toBe(200);
    expect(answer.body).toMatchObject({
      lines: [{ sku, quantity: 3 }],
      restock: true,
      refund: { payment_id: paymentId, amount_minor: 1500, currency: 'EUR', cause: 'return:all' },
      no_refund: null,
      workflow_id: `return:${id}:all`,
    });
    expect(answer.body.hold).toMatchObject({
      status: 'CONFIRMED',
      lines: [{ quantity: 3, released: 0, returned: 3 }],
    });
    expect(await service.counts(sku)).toEqual({ available: 4, held: 0, sold: 0 });
    expect((await service.ledger(sku)).slice(-2)).toEqual(['return 2 b1', 'return 1 b2']);
    const refunds = await refunded(paymentId, 'EXECUTED');
    expect(refunds).toMatchObject([{ cause: 'return:all', amount_minor: 1500, calls: 2 }]);
    expect(book.of(paymentId)).toEqual([1500]);
    expect(book.sent.at(-1)).toMatchObject({ reason: 'RETURN', holdId: id });
    expect(said(await giveBack(id))).toEqual([409, 'ALREADY_RETURNED']);
    expect(said(await giveBack(id, {}, 'all'))).toEqual([200, undefined]);
    // The provider reports what we have sent: nothing is left for anybody to look at.
    const event = succeeded({ hold_id: id, payment_id: paymentId, amount_minor: 1500 });
    await service.deliver({ ...event, type: 'payment.refunded' });
    expect(await paymentOf(service, paymentId)).toMatchObject({
      status: 'refunded',
      settlement: 'APPLIED',
    });
    expect(book.of(paymentId)).toEqual([1500]);
  });

  it('R09: parts of it, with and without restock, while another buyer holds the remaining units, who is not touched', async () => {
    const sku = await service.product([5], price);
    const { id, paymentId } = await sold(sku, 3);
    const other = await service.hold({ [sku]: 2 });
    const lines = [{ sku, quantity: 1 }];
    expect((await giveBack(id, { lines })).status).toBe(200);
    expect(await service.counts(sku)).toEqual({ available: 1, held: 2, sold: 2 });
    const kept = await giveBack(id, { lines, restock: false });
    expect(kept.body.hold.lines).toMatchObject([{ quantity: 3, returned: 2 }]);
    expect(await service.counts(sku)).toEqual({ available: 1, held: 2, sold: 2 });
    const more = await giveBack(id, { lines: [{ sku, quantity: 2 }] });
    expect(said(more)).toEqual([422, 'INVALID_QUANTITY']);
    expect(more.body).toMatchObject({
      lines: [{ sku, requested: 2, available: 1 }],
      errors: [{ field: 'lines[0].quantity' }],
    });
    await refunded(paymentId, 'EXECUTED', 2);
    expect(book.of(paymentId)).toEqual([500, 500]);
    const still = (await service.get(`/v1/holds/${other.id}`)).body;
    expect([still.status, still.lines]).toEqual(['HELD', other.lines]);
  });

  it('B19, R09: ten times at once with one key it comes back once; with keys of their own never more than was sold', async () => {
    const sku = await service.product([9], price);
    const { id, paymentId } = await sold(sku, 5);
    const lines = [{ sku, quantity: 1 }];
    const key = randomUUID();
    expect(statuses(await atOnce(10, () => giveBack(id, { lines }, key)))).toEqual({ 200: 10 });
    expect(await service.counts(sku)).toEqual({ available: 5, held: 0, sold: 4 });
    const reused = [422, 'IDEMPOTENCY_KEY_REUSED'];
    expect(said(await giveBack(id, { lines, restock: false }, key))).toEqual(reused);
    expect(said(await giveBack(id, {}, key))).toEqual(reused);
    const others = await atOnce(4, () => giveBack(id, { lines: [{ sku, quantity: 3 }] }));
    expect(statuses(others)).toEqual({ 200: 1, 422: 3 });
    expect(await service.counts(sku)).toEqual({ available: 8, held: 0, sold: 1 });
    await refunded(paymentId, 'EXECUTED', 2);
    expect(book.of(paymentId)).toEqual([500, 1500]);
  });

  it('R09: of a hold without prices a part needs refund_minor, never more than is left; 0 keeps all of it', async () => {
    const sku = await service.product([9]);
    const hold = await service.hold({ [sku]: 3 });
    const paymentId = await pay(hold.id, 1000);
    const lines = [{ sku, quantity: 1 }];
    const missing = await giveBack(hold.id, { lines });
    expect(said(missing)).toEqual([422, 'INVALID_REFUND']);
    expect(missing.body).toMatchObject({ left_minor: 1000, errors: [{ field: 'refund_minor' }] });
    const large = await giveBack(hold.id, { lines, refund_minor: 1001 });
    expect(said(large)).toEqual([422, 'INVALID_REFUND']);
    expect(large.body.detail).toContain('left of the payment, 1000');
    expect((await giveBack(hold.id, { lines, refund_minor: 0 })).body).toMatchObject({
      refund: null,
      no_refund: 'NOT_ASKED',
    });
    await giveBack(hold.id, { lines, refund_minor: 300 });
    await giveBack(hold.id);
    await refunded(paymentId, 'EXECUTED', 2);
    expect(book.of(paymentId)).toEqual([300, 700]);
  });

  it('R09: money that the provider took back before is not sent; what is not sold, or not there, is no return', async () => {
    const sku = await service.product([9], price);
    const { id, paymentId } = await sold(sku, 1);
    const event = succeeded({ hold_id: id, payment_id: paymentId, amount_minor: 500 });
    await service.deliver({ ...event, type: 'payment.refunded' });
    expect((await giveBack(id)).body).toMatchObject({ refund: null, no_refund: 'TAKEN_BACK' });
    expect(book.of(paymentId)).toEqual([]);
    const open = await service.hold({ [sku]: 1 });
    const refused = await giveBack(open.id);
    expect(said(refused)).toEqual([409, 'HOLD_NOT_CONFIRMED']);
    expect(refused.body).toMatchObject({ hold_status: 'HELD' });
    expect(said(await giveBack(randomUUID()))).toEqual([404, 'HOLD_NOT_FOUND']);
    expect(said(await giveBack(id, { reason: ' ' }))).toEqual([422, 'REASON_REQUIRED']);
  });

  it('R09: a refund that the provider refuses is listed for the operator, and asked for again by the same return', async () => {
    const sku = await service.product([9], price);
    const { id, paymentId } = await sold(sku, 1);
    trouble = 'refuses';
    await giveBack(id, {}, 'again');
    await refunded(paymentId, 'REFUSED');
    const list = await service.get<{ items: { payment_id: string }[] }>(
      '/v1/payments?refund=REFUSED',
      operator(),
    );
    expect(list.body.items.map((one) => one.payment_id)).toContain(paymentId);
    trouble = 'none';
    expect((await giveBack(id, {}, 'again')).status).toBe(200);
    await refunded(paymentId, 'EXECUTED');
    expect(book.of(paymentId)).toEqual([500]);
    expect(await service.counts(sku)).toEqual({ available: 9, held: 0, sold: 0 });
  });

  it('F5: a return whose workflow was terminated is carried on by its repeat', async () => {
    const sku = await service.product([9], price);
    const { id, paymentId } = await sold(sku, 2);
    const blocker = await service.shop.session();
    await blocker.query('begin');
    await blocker.query('select from tahan.holds where id = $1 for no key update', [id]);
    const asked = giveBack(id, {}, 'twice');
    await whenWaiting(service.shop, 'tahan.return_sale');
    await service.engine.holds.client.workflow.getHandle(`return:${id}:twice`).terminate();
    await blocker.query('rollback');
    // The repeat inside the API may have started it again already.
    expect([200, 503]).toContain((await asked).status);
    expect((await giveBack(id, {}, 'twice')).status).toBe(200);
    await refunded(paymentId, 'EXECUTED');
    expect(book.of(paymentId)).toEqual([1000]);
    expect(await service.counts(sku)).toEqual({ available: 9, held: 0, sold: 0 });
  });

  it('A14, F16: the money of a return whose workflow was lost is found at the next start of the API, and sent once', async () => {
    const sku = await service.product([9], price);
    const { id, paymentId } = await sold(sku, 2);
    const request = { holdId: id, lines: null, reason: 'r', actor: 'a', requestId: 'lost' };
    await returnSale(service.shop.db, { ...request, restock: true, refundMinor: null });
    const api = await startApi(service, inject('temporalAddress'));
    try {
      await refunded(paymentId, 'EXECUTED');
      expect(book.of(paymentId)).toEqual([1000]);
    } finally {
      await api.kill();
    }
  });
});
