import { randomUUID } from 'node:crypto';
import { WorkflowNotFoundError } from '@temporalio/client';
import { expect, it } from 'vitest';
import { until } from '../workflows/engine.js';
import { moneyBook, paymentOf, settles } from './moneyBook.js';
import { sharedService, succeeded } from './service.js';
import type { Hold } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });

/** Events by the payment's id, so that each can be delivered again as it was. */
const events = new Map<string, object>();

async function deliver(id: string, type = 'payment.succeeded'): Promise<[number, string]> {
  const event = { ...events.get(id)!, type };
  const answer = await service.deliver(event, { id: `${type}-${id}` });
  return [answer.status, answer.body.outcome];
}

async function pay(hold: Hold): Promise<string> {
  const id = randomUUID();
  events.set(id, succeeded({ hold_id: hold.id, payment_id: id }));
  expect(await deliver(id)).toEqual([200, 'RECORDED']);
  return id;
}

async function expired(settings: Record<string, unknown> = {}): Promise<Hold> {
  const sku = await service.product([1], settings);
  const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } });
  await service.becomes(hold.id, 'EXPIRED');
  return hold;
}

/** Once Temporal knows nothing of them any more, as after the retention time. */
async function deleteHistories(ids: string[]): Promise<void> {
  const { client } = service.engine.holds;
  const { workflowService: api } = client;
  for (const workflowId of ids) {
    await client.workflow.getHandle(workflowId).result();
    await api.deleteWorkflowExecution({ namespace: 'default', workflowExecution: { workflowId } });
  }
  const gone = async (id: string) => {
    try {
      await client.workflow.getHandle(id).describe();
      return false;
    } catch (error) {
      return error instanceof WorkflowNotFoundError;
    }
  };
  await until('gone', async () => (await Promise.all(ids.map(gone))).every(Boolean), 90_000);
}

it(
  'B22, F28: with the histories deleted a repeat, a late payment and payment.refunded are answered as before, out of Postgres: nothing is confirmed or sent back twice',
  { timeout: 180_000 },
  async () => {
    const sku = await service.product([5]);
    const sold = await service.hold({ [sku]: 1 });
    const applied = await pay(sold);
    await service.becomes(sold.id, 'CONFIRMED');
    const over = await expired();
    const willing = await expired({ late_payment: 'accept_if_available' });
    const refunded = [await pay(sold), await pay(over)];
    for (const id of refunded) await settles(service, id, 'REFUNDED');
    const ids = [applied, ...refunded];
    const show = async () => ({
      payments: (await Promise.all(ids.map((id) => paymentOf(service, id)))).map(
        ({ events: _, ...payment }) => payment,
      ),
      holds: (await Promise.all([sold, over].map(({ id }) => service.get(`/v1/holds/${id}`)))).map(
        ({ body }) => ({ ...body, server_time: '', expires_in_seconds: 0 }),
      ),
      ledger: await service.ledger(sku),
    });
    const repeat = () => Promise.all(ids.map((id) => deliver(id)));
    const before = { answers: await repeat(), shown: await show() };
    expect(before.answers).toEqual(ids.map(() => [200, 'DUPLICATE']));

    await deleteHistories([
      ...[sold, over, willing].map(({ id }) => `hold:${id}`),
      ...refunded.flatMap((id) => [`payment:default:${id}`, `refund:default:${id}:settlement`]),
    ]);
    expect({ answers: await repeat(), shown: await show() }).toEqual(before);

    const more = [await pay(sold), await pay(over)];
    for (const id of more) await settles(service, id, 'REFUNDED');
    await settles(service, await pay(willing), 'ACCEPTED_LATE');
    expect((await service.get(`/v1/holds/${willing.id}`)).body.status).toBe('CONFIRMED');

    for (const id of ids) expect(await deliver(id, 'payment.refunded')).toEqual([200, 'RECORDED']);
    await settles(service, applied, 'NEEDS_REVIEW');
    for (const id of refunded)
      expect(await paymentOf(service, id)).toMatchObject({ settlement: 'REFUNDED' });
    expect([...refunded, ...more].map((id) => book.of(id))).toEqual([
      [1000],
      [1000],
      [1000],
      [1000],
    ]);
    expect(book.sent).toHaveLength(4);
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1', 'confirm_sold 1 b1']);
    expect((await service.get(`/v1/holds/${sold.id}`)).body.status).toBe('CONFIRMED');
  },
);
