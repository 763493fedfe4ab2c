import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  refundWorkflowId,
  release,
  returnWorkflowId,
  returned,
  sendReturn,
} from '../../workflows/contract.js';
import type { ReturnRequest } from '../../workflows/contract.js';
import { endings, returnedSale } from './endings.js';
import { engine, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import * as talk from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());
beforeEach(() => database.reset());
afterEach(() => expect(shop.problems.splice(0)).toEqual([]));

const handle = (id: string) => shop.holds.client.workflow.getHandle(id);

describe('a return', () => {
  test('R09: a repeat that comes while the refusal of its refund is written is not lost: the provider is asked again', async () => {
    const refund = await endings['returnAskedAgain']!(shop, database);
    expect(await handle(refund).result()).toEqual({ state: 'EXECUTED', providerRef: 'r1' });
    const holdId = refund.split(':')[2]!;
    expect(database.callsOf('sendRefund', holdId)).toBe(2);
    expect(database.callsOf('returnSale', holdId)).toBe(2);
  });

  test('F5: a cancel in Temporal does not end it, and it is carried out though nobody waits for the answer', async () => {
    database.instead.returnSale = async (call) => {
      if (call > 1) return undefined;
      const { events } = await handle(returnWorkflowId(holdId, 'one')).fetchHistory();
      if (!events!.some((one) => one.workflowExecutionCancelRequestedEventAttributes))
        throw new Error('not yet cancelled');
      return undefined;
    };
    const wanted = await talk.hold(shop);
    const { holdId } = wanted;
    await talk.pay(shop, wanted, { paymentId: holdId });
    await handleOf(shop, holdId).result();
    const of = { holdId, requestId: 'one', actor: 'ann', reason: 'r', restock: true };
    const request: ReturnRequest = { ...of, lines: null, refundMinor: null };
    const taskQueue = `${shop.holds.prefix}tahan-effects`;
    const workflowId = returnWorkflowId(holdId, 'one');
    await shop.holds.client.workflow.start('returnSale', {
      workflowId,
      taskQueue,
      args: [request],
    });
    await handle(workflowId).cancel();
    expect(await handle(workflowId).result()).toMatchObject({ outcome: 'RETURNED' });
    const refund = refundWorkflowId({ provider: 'fake', paymentId: holdId }, 'return:one');
    expect(await handle(refund).result()).toMatchObject({ state: 'EXECUTED' });
  });

  test('B19: another request under its id is put to Postgres, which refuses it', async () => {
    const { request } = await returnedSale(shop);
    database.instead.returnSale = () => ({ outcome: 'KEY_REUSED' });
    const other = { ...request, restock: false };
    expect(await sendReturn(shop.holds, other, { withinMs: talk.withinMs })).toEqual({
      outcome: 'ANSWERED',
      answer: { outcome: 'KEY_REUSED' },
    });
  });

  test('malformed returns and releases are refused before they are accepted', async () => {
    database.slowMs = 300;
    const wanted = await talk.hold(shop);
    const line = { sku: 'SKU-1', quantity: 1 };
    const good = { lines: [line], reason: 'r', actor: 'a', requestId: 'x' };
    const quantities = [-5, 0, 1.5, '2', null, 2 ** 31];
    for (const bad of [
      ...quantities.map((quantity) => ({ ...good, lines: [{ ...line, quantity }] })),
      { ...good, lines: [] },
      { ...good, lines: Array(51).fill(line) },
      { ...good, reason: '' },
      { ...good, requestId: 'x'.repeat(301) },
      {},
      null,
    ])
      await expect(
        handleOf(shop, wanted.holdId).executeUpdate(release, { args: [bad as never] }),
      ).rejects.toThrow();
    expect(database.callsOf('release', wanted.holdId)).toBe(0);
    await talk.cancel(shop, wanted);

    const request = { ...good, holdId: randomUUID(), restock: true, refundMinor: null };
    const workflowId = returnWorkflowId(request.holdId, 'x');
    const taskQueue = `${shop.holds.prefix}tahan-effects`;
    database.slowMs = 2000;
    await shop.holds.client.workflow.start('returnSale', {
      workflowId,
      taskQueue,
      args: [request],
    });
    await until('it runs', () => database.callsOf('returnSale', request.holdId) === 1);
    for (const bad of [
      { ...request, lines: [{ ...line, quantity: 0 }] },
      { ...request, restock: 'yes' },
      { ...request, refundMinor: -1 },
      { ...request, holdId: '' },
    ])
      await expect(
        handle(workflowId).executeUpdate(returned, { args: [bad as never] }),
      ).rejects.toThrow();
    expect(database.callsOf('returnSale', request.holdId)).toBe(1);
    // Its hold was never made, which the workflow says when it ends.
    expect(await handle(workflowId).result()).toMatchObject({ outcome: 'MISSING' });
    await until('it is told', () => shop.problems.length > 0);
    expect(shop.problems.splice(0)).toEqual([expect.stringContaining('has no row in Postgres')]);
  });
});

describe('a release', () => {
  test('B13: a payment that is in the way is confirmed first, and the release is told that the hold is paid', async () => {
    const wanted = await talk.hold(shop);
    const lost = { provider: 'fake', paymentId: 'lost', status: 'succeeded' } as const;
    const pending = { ...lost, inTime: true, settlement: null };
    database.rows.get(wanted.holdId)!.payments.set('fake/lost', pending);
    expect(await talk.release(shop, wanted, { 'SKU-1': 1 })).toEqual({
      outcome: 'ANSWERED',
      answer: { outcome: 'ALREADY', status: 'CONFIRMED' },
    });
    expect(await handleOf(shop, wanted.holdId).result()).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'release', 'confirm', 'release']);
  });

  test('B13: the window stays as it was: a release neither ends nor prolongs it', async () => {
    database.holdMs = 1500;
    const wanted = await talk.hold(shop);
    const endsAt = database.rows.get(wanted.holdId)!.endsAt;
    await talk.release(shop, wanted, { 'SKU-1': 1 });
    expect(await handleOf(shop, wanted.holdId).result()).toMatchObject({ outcome: 'EXPIRED' });
    expect(Date.now() - endsAt).toBeGreaterThanOrEqual(0);
    expect(database.callsOf('expire', wanted.holdId)).toBe(1);
  });
});
