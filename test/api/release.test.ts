import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { TypedSearchAttributes } from '@temporalio/common';
import { holdSkus } from '../../workflows/searchAttributes.js';
import { until } from '../workflows/engine.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Answer, Hold, Order } from './service.js';

const service = sharedService();

function release(
  id: string,
  lines: Record<string, number>,
  {
    key,
    query = '',
    reason = 'one is enough',
  }: { key?: string; query?: string; reason?: string } = {},
): Promise<Answer<Hold>> {
  const body = {
    lines: Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
    reason,
  };
  const sent = key === undefined ? {} : { idempotencyKey: key };
  return service.post(`/v1/holds/${id}/release${query}`, body, sent);
}
const linesOf = (hold: Hold) =>
  hold.lines.map(({ sku, quantity, released }) => [sku, quantity, released]);
const said = ({ status, body }: Answer<unknown>) => [status, body.code];

describe('a part of a hold is given back', () => {
  it('B13: of 10 and 10, 3 of p and 4 of q, then 2 of p, then all of q, then the rest: held 7/6, 5/6, 5/0, 0/0; 11 are 422; the releases add up to 10 and 10', async () => {
    const [p, q] = (await atOnce(2, () => service.product([100]))).sort() as [string, string];
    const hold = await service.hold({ [p]: 10, [q]: 10 });
    const held = async () => [(await service.counts(p)).held, (await service.counts(q)).held];
    const eleven = await release(hold.id, { [p]: 11 });
    expect(said(eleven)).toEqual([422, 'INVALID_QUANTITY']);
    expect(eleven.body).toMatchObject({
      lines: [{ sku: p, requested: 11, available: 10 }],
      errors: [{ in: 'body', field: 'lines[0].quantity', detail: 'must be at most 10' }],
    });
    expect(await held()).toEqual([10, 10]);

    const first = await release(hold.id, { [p]: 3, [q]: 4 });
    expect([first.status, linesOf(first.body)]).toEqual([
      200,
      [
        [p, 7, 3],
        [q, 6, 4],
      ],
    ]);
    expect(first.body.expires_at).toBe(hold.expires_at);
    expect(await held()).toEqual([7, 6]);
    expect((await release(hold.id, { [p]: 2 })).status).toBe(200);
    expect(await held()).toEqual([5, 6]);
    const line = await release(hold.id, { [q]: 6 });
    expect([line.body.status, linesOf(line.body)]).toEqual([
      'HELD',
      [
        [p, 5, 5],
        [q, 0, 10],
      ],
    ]);
    expect(line.body.lines[1]!.allocations).toEqual([]);
    expect(await held()).toEqual([5, 0]);
    const last = await release(hold.id, { [p]: 5 });
    expect([last.status, last.body.status, last.body.reason]).toEqual([
      200,
      'CANCELLED',
      'one is enough',
    ]);
    for (const sku of [p, q]) {
      expect(await service.counts(sku)).toEqual({ available: 100, held: 0, sold: 0 });
      const back = (await service.ledger(sku)).filter((entry) => entry.startsWith('release'));
      expect(back.reduce((sum, entry) => sum + Number(entry.split(' ')[1]), 0)).toBe(10);
    }
    const after = await release(hold.id, { [p]: 1 });
    expect(said(after)).toEqual([409, 'HOLD_ALREADY_CANCELLED']);
  });

  it('B13: a product that is not in the hold is 422, and an operator finds the hold no more by one that is gone', async () => {
    const [p, q] = [await service.product([9]), await service.product([9])];
    const hold = await service.hold({ [p]: 2, [q]: 2 });
    expect(said(await release(hold.id, { nothing: 1 }))).toEqual([422, 'INVALID_QUANTITY']);
    expect((await release(hold.id, { [q]: 2 })).status).toBe(200);
    const handle = service.engine.holds.client.workflow.getHandle(hold.workflow_id);
    await until('the search attribute is changed', async () => {
      const { typedSearchAttributes } = await handle.describe();
      return String(new TypedSearchAttributes(typedSearchAttributes.getAll()).get(holdSkus)) === p;
    });
    const details = await handle.query<{ currentDetails?: string }>('__temporal_workflow_metadata');
    expect(details.currentDetails).toContain(`still held: 2 x ${p}`);
    // What is terminated now is carried on with what is left.
    await handle.terminate('test');
    expect((await release(hold.id, { [p]: 1 })).status).toBe(200);
    const { staticSummary } = await handle.describe();
    expect(await staticSummary()).toMatch(new RegExp(`^2 x ${p} for buyer`));
  });

  it('B19, A7: ten times at once with one key it is given back once; the key stands for nothing else, also after the end of the hold', async () => {
    const sku = await service.product([10]);
    const hold = await service.hold({ [sku]: 5 });
    const key = randomUUID();
    const answers = await atOnce(10, () => release(hold.id, { [sku]: 2 }, { key }));
    expect(statuses(answers)).toEqual({ 200: 10 });
    expect((await service.counts(sku)).held).toBe(3);
    const reused = [422, 'IDEMPOTENCY_KEY_REUSED'];
    expect(said(await release(hold.id, { [sku]: 1 }, { key }))).toEqual(reused);
    expect(said(await release(hold.id, { [sku]: 2 }, { key, reason: 'other' }))).toEqual(reused);
    const extended = await service.post(
      `/v1/holds/${hold.id}/extend`,
      { seconds: 5 },
      { idempotencyKey: key },
    );
    expect(said(extended)).toEqual(reused);
    const rest = randomUUID();
    expect((await release(hold.id, { [sku]: 3 }, { key: rest })).body.status).toBe('CANCELLED');
    await service.engine.holds.client.workflow.getHandle(hold.workflow_id).result();
    expect(said(await release(hold.id, { [sku]: 3 }, { key: rest }))).toEqual([200, undefined]);
    expect(said(await release(hold.id, { [sku]: 2 }, { key }))).toEqual([200, undefined]);
    expect(said(await release(hold.id, { [sku]: 2 }, { key: rest }))).toEqual(reused);
    expect(await service.counts(sku)).toEqual({ available: 10, held: 0, sold: 0 });
  });

  it('R33, F23: an order is paid at the price of what is left; the old total is refunded', async () => {
    const sku = await service.product([9], { price: { amount_minor: 500, currency: 'EUR' } });
    const { body: order } = await service.checkout<Order>({ [sku]: 3 }, { path: '/v1/orders' });
    await release(order.hold_id, { [sku]: 1 });
    const shown = await service.get<Order>(`/v1/orders/${order.order_number}`);
    expect(shown.body).toMatchObject({
      total: { amount_minor: 1000, currency: 'EUR' },
      lines: [{ quantity: 2, released: 1, returned: 0 }],
    });
    await service.paid(order.hold_id, { amount_minor: 1500 });
    await service.paid(order.hold_id, { amount_minor: 1000 });
    const paid = await service.becomes(order.hold_id, 'CONFIRMED');
    expect(paid.payments.map((one) => [one.amount_minor, one.settlement_reason])).toEqual([
      [1500, 'MISMATCH'],
      [1000, null],
    ]);
    expect(await service.counts(sku)).toEqual({ available: 7, held: 0, sold: 2 });
    expect(said(await release(order.hold_id, { [sku]: 1 }))).toEqual([
      409,
      'HOLD_ALREADY_CONFIRMED',
    ]);
  });

  it('S6: of another buyer or of nobody it is 404; without a reason 422; of an ended or refused hold 409', async () => {
    const sku = await service.product([2]);
    const hold = await service.hold({ [sku]: 1 }, { buyer: 'a', fields: { hold_seconds: 1 } });
    const stranger = await release(hold.id, { [sku]: 1 }, { query: '?buyer_id=b' });
    expect(said(stranger)).toEqual([404, 'HOLD_NOT_FOUND']);
    expect(said(await release(randomUUID(), { [sku]: 1 }))).toEqual([404, 'HOLD_NOT_FOUND']);
    expect(said(await release(hold.id, { [sku]: 1 }, { reason: ' ' }))).toEqual([
      422,
      'REASON_REQUIRED',
    ]);
    const many = {
      lines: [
        { sku, quantity: 6000 },
        { sku, quantity: 6000 },
      ],
      reason: 'r',
    };
    expect(said(await service.post(`/v1/holds/${hold.id}/release`, many))).toEqual([
      422,
      'INVALID_QUANTITY',
    ]);
    await service.becomes(hold.id, 'EXPIRED');
    expect(said(await release(hold.id, { [sku]: 1 }))).toEqual([409, 'HOLD_EXPIRED']);
    const late = await service.hold({ [sku]: 1 });
    await service.shop.shiftClock(600_500);
    expect(said(await release(late.id, { [sku]: 1 }))).toEqual([409, 'HOLD_EXPIRED']);
    await service.shop.shiftClock(0);
    await service.claimElsewhere({ [sku]: 9 }, { buyer: 'short' });
    const { body } = await service.get<{ items: Hold[] }>('/v1/holds?buyer_id=short', {
      key: service.operatorKey,
    });
    expect(said(await release(body.items[0]!.id, { [sku]: 1 }))).toEqual([
      409,
      'INSUFFICIENT_STOCK',
    ]);
  });

  it('B13: 20 releases of 2 of 3 units race a payment, a cancel and one another: the counts are true, and nothing is given back twice', async () => {
    const sku = await service.product([60]);
    const holds = await atOnce(20, () => service.hold({ [sku]: 3 }));
    await Promise.all(
      holds.map(async ({ id }, index) => {
        const rival = [
          () => service.paid(id),
          () => service.post(`/v1/holds/${id}/cancel`, { reason: 'no more' }),
          () => release(id, { [sku]: 2 }),
        ][index % 3]!;
        const both = [() => release(id, { [sku]: 2 }), rival];
        const answers = await Promise.all((index % 2 ? both : both.reverse()).map((ask) => ask()));
        for (const { status } of answers) expect([200, 409, 422, 503]).toContain(status);
      }),
    );
    let held = 0;
    let sold = 0;
    for (const [index, { id }] of holds.entries()) {
      if (index % 3 === 0) await service.becomes(id, 'CONFIRMED');
      const { body } = await service.get(`/v1/holds/${id}`);
      expect(body.status).toBe(['CONFIRMED', 'CANCELLED', 'HELD'][index % 3]);
      const { quantity, released } = body.lines[0]!;
      expect(quantity + released).toBe(3);
      if (body.status === 'HELD') held += quantity;
      if (body.status === 'CONFIRMED') sold += quantity;
    }
    expect(held).toBe(6);
    expect(await service.counts(sku)).toEqual({ available: 60 - held - sold, held, sold });
  });
});
