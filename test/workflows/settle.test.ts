import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { PaymentRef } from '../../db/values.js';
import {
  decide,
  refundWorkflowId,
  sendDecision,
  sendSettle,
  settleWorkflowId,
} from '../../workflows/contract.js';
import type { DecisionRequest, RefundResult, SettleResult } from '../../workflows/contract.js';
import { endOf, engine, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import { hold, pay, withinMs } from './talk.js';

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
const settled = async (payment: PaymentRef) =>
  (await handle(settleWorkflowId(payment)).result()) as SettleResult;
const refunded = async (payment: PaymentRef) =>
  (await handle(refundWorkflowId(payment, 'settlement')).result()) as RefundResult;
const settle = (holdId: string, payment: PaymentRef) =>
  sendSettle(shop.holds, holdId, payment, { withinMs });
const executed = { state: 'EXECUTED', providerRef: 'r1' };

/** A payment of a hold that has expired, recorded and not settled. */
async function late(): Promise<{ holdId: string; payment: PaymentRef }> {
  database.holdMs = 100;
  const { holdId } = await hold(shop);
  await endOf(shop, holdId);
  const payment = { provider: 'fake', paymentId: randomUUID() };
  const row = { ...payment, status: 'succeeded', inTime: false, settlement: null } as const;
  database.rows.get(holdId)!.payments.set(`fake/${payment.paymentId}`, row);
  return { holdId, payment };
}

function decideNow(
  { holdId, payment }: Awaited<ReturnType<typeof late>>,
  decision: 'accept' | 'refund',
  requestId: string = randomUUID(),
) {
  const request: DecisionRequest = { decision, reason: 'looked at', actor: 'ann', requestId };
  return sendDecision(shop.holds, holdId, payment, request, { withinMs });
}

async function inReview() {
  database.latePolicy = 'review';
  const found = await late();
  await settle(found.holdId, found.payment);
  await until('in review', () => database.callsOf('requestRefund', found.holdId) === 1);
  return found;
}

async function describePending(id: string) {
  const { raw } = await handle(id).describe();
  return (raw.pendingActivities ?? []).map(({ attempt, lastFailure, activityType }) => ({
    activity: activityType?.name,
    attempt,
    error: lastFailure?.message,
  }));
}

describe('money for a hold whose workflow has ended', () => {
  test('F17 confirm decides, and what is due gets a refund of its own; a second start changes nothing', async () => {
    const { holdId, payment } = await late();
    expect(await settle(holdId, payment)).toEqual({ outcome: 'SENT' });
    expect(await settled(payment)).toEqual({ outcome: 'TOO_LATE', settlement: 'REFUND_DUE' });
    expect(await refunded(payment)).toEqual(executed);
    expect(await settle(holdId, payment)).toEqual({ outcome: 'SENT' });
    expect(await settled(payment)).toEqual({ outcome: 'TOO_LATE', settlement: 'REFUNDED' });
    expect(database.callsOf('sendRefund', holdId)).toBe(1);
  });

  test('a payment that must come first is confirmed first; the same one twice is paused, and a cancel does not end it', async () => {
    const { holdId, payment } = await late();
    const first = { provider: 'fake', paymentId: 'first' };
    const pending = { outcome: 'PAYMENT_PENDING', payment: first };
    database.instead.confirm = (call) =>
      [pending, { outcome: 'CONFIRMED', late: false }, { outcome: 'SURPLUS' }][call - 1];
    await settle(holdId, payment);
    expect(await settled(payment)).toMatchObject({ outcome: 'SURPLUS' });
    expect(database.callsOf('confirm', holdId)).toBe(3);

    const stuck = await late();
    database.instead.confirm = () => pending;
    await settle(stuck.holdId, stuck.payment);
    const waiting = handle(settleWorkflowId(stuck.payment));
    const details = async () =>
      (await waiting.query<{ currentDetails?: string }>('__temporal_workflow_metadata'))
        .currentDetails ?? '';
    await until('paused', async () => /stays pending/.test(await details()));
    await waiting.cancel();
    await until('the cancel is handled', async () => {
      const { events } = await waiting.fetchHistory();
      const at = events!.findIndex(
        (event) => event.workflowExecutionCancelRequestedEventAttributes,
      );
      return at > 0 && events!.slice(at).some((one) => one.workflowTaskCompletedEventAttributes);
    });
    expect((await waiting.describe()).status.name).toBe('RUNNING');
    expect(database.callsOf('confirm', stuck.holdId)).toBeLessThan(6);
    await waiting.terminate();
  });
});

describe('a payment in review', () => {
  test.each([
    ['accept', { outcome: 'ACCEPTED_LATE' }, 'ALREADY_CONFIRMED', 'ACCEPTED_LATE', 0],
    ['refund', { outcome: 'REFUND_DUE' }, 'TOO_LATE', 'REFUND_DUE', 1],
  ] as const)(
    'waits for an operator, who is answered: %s',
    async (decision, answer, outcome, settlement, refunds) => {
      const found = await inReview();
      const waiting = await handle(settleWorkflowId(found.payment)).describe();
      expect(waiting.status.name).toBe('RUNNING');
      expect(await decideNow(found, decision)).toEqual({ outcome: 'ANSWERED', answer });
      expect(await settled(found.payment)).toEqual({ outcome, settlement });
      if (refunds > 0) expect(await refunded(found.payment)).toEqual(executed);
      expect(database.callsOf('sendRefund', found.holdId)).toBe(refunds);
    },
  );

  test('what a decision can not do leaves it waiting for the next one', async () => {
    const found = await inReview();
    const short = { outcome: 'INSUFFICIENT_STOCK' };
    database.instead.decidePayment = (call) => (call === 1 ? short : undefined);
    expect(await decideNow(found, 'accept')).toEqual({ outcome: 'ANSWERED', answer: short });
    const answer = { outcome: 'REFUND_DUE' };
    expect(await decideNow(found, 'refund')).toEqual({ outcome: 'ANSWERED', answer });
    await settled(found.payment);
  });

  test('terminated, it is started again by the decision (F5)', async () => {
    const found = await inReview();
    await handle(settleWorkflowId(found.payment)).terminate();
    const answer = { outcome: 'ACCEPTED_LATE' };
    expect(await decideNow(found, 'accept')).toEqual({ outcome: 'ANSWERED', answer });
    expect(await settled(found.payment)).toMatchObject({ settlement: 'ACCEPTED_LATE' });
  });

  test('F20 F21 eight decisions at once are all answered, one decides, and one that comes after the end is told so', async () => {
    const found = await inReview();
    const sent = await Promise.all(
      Array.from({ length: 8 }, (_, n) => decideNow(found, n % 2 ? 'accept' : 'refund')),
    );
    const answers = sent.map((one) => (one.outcome === 'ANSWERED' ? one.answer.outcome : one));
    expect(answers.filter((outcome) => outcome === 'ALREADY')).toHaveLength(7);
    await settled(found.payment);
    const after = await decideNow(found, 'accept');
    expect(after).toMatchObject({ outcome: 'ANSWERED', answer: { outcome: 'ALREADY' } });
    await settled(found.payment);
  });

  test('a malformed decision is refused before it is accepted, and it waits on', async () => {
    const found = await inReview();
    const waiting = handle(settleWorkflowId(found.payment));
    const good = { decision: 'accept', reason: 'r', actor: 'a', requestId: 'i' };
    for (const bad of [null, {}, { ...good, decision: 'perhaps' }, { ...good, reason: ' ' }]) {
      const asking = waiting.executeUpdate(decide, { args: [bad as DecisionRequest] });
      await expect(asking).rejects.toThrow();
    }
    expect(database.callsOf('decidePayment')).toBe(0);
    await waiting.terminate();
  });
});

describe('a refund', () => {
  test('of a second payment: the hold ends without waiting for the provider, whose error an operator sees (F25)', async () => {
    let away = true;
    database.instead.sendRefund = () => {
      if (away) throw new Error('the provider is away');
      return undefined;
    };
    const wanted = await hold(shop);
    const second = { provider: 'fake', paymentId: randomUUID() };
    database.slowMs = 50;
    await pay(shop, wanted, { paymentId: randomUUID() });
    await pay(shop, wanted, second);
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(await settled(second)).toEqual({ outcome: 'SURPLUS', settlement: 'REFUND_DUE' });
    const id = refundWorkflowId(second, 'settlement');
    await until('tried twice', async () => (await describePending(id))[0]?.attempt === 3);
    expect(await describePending(id)).toMatchObject([
      { activity: 'sendRefund', error: 'the provider is away' },
    ]);
    // A cancel does not end it: the money is somebody else's.
    await handle(id).cancel();
    away = false;
    expect(await refunded(second)).toEqual(executed);
  });

  test('that the provider refuses waits for an operator in a settlement of its own, and may be asked for again', async () => {
    const { holdId, payment } = await late();
    const refused = { state: 'REFUSED', detail: 'charge_disputed' };
    const park = () => {
      database.rows.get(holdId)!.payments.get(`fake/${payment.paymentId}`)!.settlement =
        'NEEDS_REVIEW';
      return refused;
    };
    database.instead.sendRefund = (call) => (call === 1 ? park() : undefined);
    await settle(holdId, payment);
    await settled(payment);
    expect(await refunded(payment)).toEqual(refused);
    await until('in review', () => database.callsOf('requestRefund', holdId) === 2);
    const answer = { outcome: 'REFUND_DUE' };
    expect(await decideNow({ holdId, payment }, 'refund')).toEqual({ outcome: 'ANSWERED', answer });
    await until('sent again', () => database.callsOf('sendRefund', holdId) === 2);
    expect(await refunded(payment)).toEqual(executed);
  });

  test('whose workflow was terminated is started again by whoever settles next (F5)', async () => {
    const { holdId, payment } = await late();
    database.instead.sendRefund = (call) => {
      if (call === 1) throw new Error('the provider is away');
      return undefined;
    };
    await settle(holdId, payment);
    const id = refundWorkflowId(payment, 'settlement');
    await until('tried', () => database.callsOf('sendRefund', holdId) >= 1);
    await handle(id).terminate();
    await settle(holdId, payment);
    await settled(payment);
    expect(await refunded(payment)).toEqual(executed);
  });
});
