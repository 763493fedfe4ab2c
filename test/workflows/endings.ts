import {
  refundWorkflowId,
  returnWorkflowId,
  send,
  sendDecision,
  sendReturn,
  sendSettle,
  settleWorkflowId,
  workflowId,
} from '../../workflows/contract.js';
import { endOf, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import type { FakeDatabase } from './fakeDatabase.js';
import { request } from './fakeDatabase.js';
import { cancel, claimAgain, extend, hold, pay, payment, release, withinMs } from './talk.js';

/** Every way a workflow can end, and how it is brought about: a stored history for each of them. */
export const endings: Record<string, (shop: Engine, database: FakeDatabase) => Promise<string>> = {
  async paid(shop) {
    const wanted = await hold(shop);
    await pay(shop, wanted);
    return workflowId(wanted.holdId);
  },
  /** By the API, which has stored the payment before it signals. */
  async paidAndRecorded(shop, database) {
    const wanted = await hold(shop);
    const of = { holdId: wanted.holdId, orderNumber: null, eventId: null, payload: {} };
    await database.activities().recordPayment({ ...payment(), ...of, status: 'succeeded' });
    await pay(shop, wanted, { recorded: true });
    return workflowId(wanted.holdId);
  },
  /** Said to be recorded, and it is not. */
  async paidAndNotRecorded(shop) {
    const wanted = await hold(shop);
    await pay(shop, wanted, { recorded: true });
    return workflowId(wanted.holdId);
  },
  async expired(shop, database) {
    database.holdMs = 500;
    return workflowId((await hold(shop)).holdId);
  },
  async expiredAfterNotDue(shop, database) {
    database.holdMs = 500;
    database.instead.expire = (call) =>
      call === 1 ? { outcome: 'NOT_DUE', remainingMs: 200 } : undefined;
    return workflowId((await hold(shop)).holdId);
  },
  async confirmedAtTheDeadline(shop, database) {
    database.holdMs = 500;
    const { holdId } = await hold(shop);
    const lost = { provider: 'fake', paymentId: 'lost', status: 'succeeded' } as const;
    const pending = { ...lost, inTime: true, settlement: null };
    database.rows.get(holdId)!.payments.set('fake/lost', pending);
    return workflowId(holdId);
  },
  async cancelled(shop) {
    const wanted = await hold(shop);
    await cancel(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async orderOfCart(shop) {
    const wanted = await hold(shop, { lines: null, order: true });
    await cancel(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async cancelledInTemporal(shop) {
    const { holdId } = await hold(shop);
    await handleOf(shop, holdId).cancel();
    return workflowId(holdId);
  },
  async extended(shop, database) {
    database.holdMs = 1000;
    const wanted = await hold(shop);
    await extend(shop, wanted, 1);
    return workflowId(wanted.holdId);
  },
  async releasedAndPaid(shop) {
    const wanted = await hold(shop);
    await release(shop, wanted, { 'SKU-1': 1 });
    await pay(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async releasedToTheLast(shop) {
    const wanted = await hold(shop);
    await release(shop, wanted, { 'SKU-1': 2 });
    await release(shop, wanted, { 'SKU-1': 1 });
    return workflowId(wanted.holdId);
  },
  async releasedBehindAPayment(shop, database) {
    const wanted = await hold(shop);
    const lost = { provider: 'fake', paymentId: 'lost', status: 'succeeded' } as const;
    const pending = { ...lost, inTime: true, settlement: null };
    database.rows.get(wanted.holdId)!.payments.set('fake/lost', pending);
    await release(shop, wanted, { 'SKU-1': 1 });
    return workflowId(wanted.holdId);
  },
  async refused(shop, database) {
    database.instead.claim = () => ({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku: 'SKU-1', requested: 1, available: 0 }],
      requestHash: 'hash-1',
    });
    const wanted = request();
    await claimAgain(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async tooLate(shop, database) {
    database.instead.claim = () => ({ outcome: 'CLAIM_TOO_LATE' });
    const wanted = request();
    await claimAgain(shop, wanted);
    return workflowId(wanted.holdId);
  },
  /** The first try, a local activity, does not get through. */
  async expiredFoundOut(shop, database) {
    database.holdMs = 500;
    database.instead.expire = (call) => {
      if (call <= 2) throw new Error('Postgres is away');
      return undefined;
    };
    return workflowId((await hold(shop)).holdId);
  },
  async claimFoundOut(shop, database) {
    database.instead.claim = (call) => {
      if (call <= 7) throw new Error('Postgres is away');
      return undefined;
    };
    const wanted = request();
    await claimAgain(shop, wanted);
    await cancel(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async adopted(shop) {
    const wanted = await hold(shop);
    await handleOf(shop, wanted.holdId).terminate();
    await send(shop.holds, wanted, { kind: 'start' }, { withinMs });
    await cancel(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async keyReused(shop, database) {
    database.holdMs = 800;
    const wanted = await hold(shop);
    await handleOf(shop, wanted.holdId).terminate();
    await send(shop.holds, { ...wanted, requestHash: 'other' }, { kind: 'start' }, { withinMs });
    return workflowId(wanted.holdId);
  },
  async surplus(shop, database) {
    database.slowMs = 100;
    const wanted = await hold(shop);
    await pay(shop, wanted);
    await until('confirming', () => database.callsOf('confirm', wanted.holdId) === 1);
    await pay(shop, wanted, { paymentId: `p2 ${wanted.holdId}` });
    return workflowId(wanted.holdId);
  },
  async missing(shop, database) {
    database.holdMs = 500;
    const { holdId } = await hold(shop);
    database.rows.clear();
    return workflowId(holdId);
  },
  async withoutAttributes(shop) {
    const wanted = await hold(shop, { indexed: false });
    await cancel(shop, wanted);
    return workflowId(wanted.holdId);
  },
  async settled(shop, database) {
    const { holdId, payment } = await paidLate(shop, database);
    await sendSettle(shop.holds, holdId, payment, { withinMs });
    return settleWorkflowId(payment);
  },
  async refunded(shop, database) {
    const { holdId, payment } = await paidLate(shop, database);
    await sendSettle(shop.holds, holdId, payment, { withinMs });
    await until('refunded', () => database.callsOf('sendRefund', holdId) === 1);
    return refundWorkflowId(payment, 'settlement');
  },
  async returned(shop) {
    const { request } = await returnedSale(shop);
    return returnWorkflowId(request.holdId, request.requestId);
  },
  async returnRepeated(shop, database) {
    database.slowMs = 100;
    const { request } = await returnedSale(shop);
    await sendReturn(shop.holds, request, { withinMs });
    return returnWorkflowId(request.holdId, request.requestId);
  },
  async returnRefunded(shop, database) {
    const { request, payment } = await returnedSale(shop);
    await until('refunded', () => database.callsOf('sendRefund', request.holdId) === 1);
    return refundWorkflowId(payment, `return:${request.requestId}`);
  },
  async returnAskedAgain(shop, database) {
    // The repeat comes while the provider's refusal is being written.
    database.instead.sendRefund = async (call, holdId) => {
      if (call > 1) return undefined;
      const refund = refundWorkflowId({ provider: 'fake', paymentId: holdId }, 'return:one');
      await until('asked again', async () => {
        const { events } = await shop.holds.client.workflow.getHandle(refund).fetchHistory();
        return events!.some((event) => event.workflowExecutionSignaledEventAttributes);
      });
      return { state: 'REFUSED', detail: 'closed' };
    };
    const { request, payment } = await returnedSale(shop);
    await until('called', () => database.callsOf('sendRefund', request.holdId) === 1);
    await sendReturn(shop.holds, request, { withinMs });
    return refundWorkflowId(payment, 'return:one');
  },
  async refundRefused(shop, database) {
    database.instead.sendRefund = () => ({ state: 'REFUSED', detail: 'charge_disputed' });
    const { holdId, payment } = await paidLate(shop, database);
    await sendSettle(shop.holds, holdId, payment, { withinMs });
    await until('refused', () => database.callsOf('sendRefund', holdId) >= 1);
    return refundWorkflowId(payment, 'settlement');
  },
  async acceptedAfterReview(shop, database) {
    database.latePolicy = 'review';
    const { holdId, payment } = await paidLate(shop, database);
    await sendSettle(shop.holds, holdId, payment, { withinMs });
    await until('in review', () => database.callsOf('requestRefund', holdId) === 1);
    const by = { reason: 'looked at', actor: 'ann', requestId: 'one' };
    const request = { decision: 'accept', ...by } as const;
    await sendDecision(shop.holds, holdId, payment, request, { withinMs });
    return settleWorkflowId(payment);
  },
};

/** A paid hold, of which everything was taken back. */
export async function returnedSale(shop: Engine) {
  const wanted = await hold(shop);
  const payment = { provider: 'fake', paymentId: wanted.holdId };
  await pay(shop, wanted, payment);
  await endOf(shop, wanted.holdId);
  const of = { holdId: wanted.holdId, requestId: 'one', actor: 'ann', reason: 'does not fit' };
  const request = { ...of, lines: null, restock: true, refundMinor: null };
  await sendReturn(shop.holds, request, { withinMs });
  return { request, payment };
}

/** A payment that was recorded after its hold had expired. */
async function paidLate(shop: Engine, database: FakeDatabase) {
  database.holdMs = 100;
  const { holdId } = await hold(shop);
  await endOf(shop, holdId);
  const payment = { provider: 'fake', paymentId: holdId };
  const row = { ...payment, status: 'succeeded', inTime: false, settlement: null } as const;
  database.rows.get(holdId)!.payments.set(`fake/${holdId}`, row);
  return { holdId, payment };
}
