import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { cancel as cancelUpdate, workflowId } from '../../workflows/contract.js';
import { endOf, engine, handleOf, stateOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase, request } from './fakeDatabase.js';
import { cancel, claimAgain, extend, hold, pay, payment } from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());
beforeEach(() => database.reset());
afterEach(() => expect(shop.problems.splice(0)).toEqual([]));

/** A signal as another SDK, or a broken one, may send it: any bytes, any encoding, any name. */
async function signalRaw(holdId: string, encoding: string, data: string, name = 'paymentReceived') {
  const bytes = (text: string) => new TextEncoder().encode(text);
  await shop.holds.client.workflowService.signalWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: workflowId(holdId) },
    signalName: name,
    input: { payloads: [{ metadata: { encoding: bytes(encoding) }, data: bytes(data) }] },
  });
}

describe('nothing that was accepted is lost', () => {
  test('F20 F25 a second payment that arrives while the first is confirmed is settled too, 20 of 20', async () => {
    const wanted = await Promise.all(Array.from({ length: 20 }, () => hold(shop)));
    const paidTwice = new Set<string>();
    database.instead.confirm = (_, holdId) =>
      until('the second payment is sent', () => paidTwice.has(holdId));
    await Promise.all(
      wanted.map(async (one) => {
        await pay(shop, one);
        await until('confirming', () => database.callsOf('confirm', one.holdId) === 1);
        const second = { paymentId: `p2 ${one.holdId}` };
        expect(await pay(shop, one, second)).toEqual({ outcome: 'SENT' });
        paidTwice.add(one.holdId);
      }),
    );
    for (const { holdId } of wanted) {
      expect(await endOf(shop, holdId)).toMatchObject({
        outcome: 'CONFIRMED',
        notes: [`payment fake/p2 ${holdId}: SURPLUS`],
      });
      const { payments } = database.rows.get(holdId)!;
      await until('refunded', () => payments.get(`fake/p2 ${holdId}`)!.settlement === 'REFUNDED');
    }
  });

  test('F20 a payment accepted during the completing task: the server refuses the completion, the loop handles it', async () => {
    const wanted = request();
    // A refused claim is a local activity and the last step: the task is still open while it runs.
    database.instead.claim = async (call) => {
      if (call === 1) await pay(shop, wanted);
      return { outcome: 'INSUFFICIENT_STOCK', shortfalls: [], requestHash: 'hash-1' };
    };
    // The refused task took the question with it. Sent again, it is answered, or finds the hold ended.
    const sent = await claimAgain(shop, wanted);
    if (sent.outcome !== 'ENDED')
      expect(sent).toMatchObject({ answer: { outcome: 'INSUFFICIENT_STOCK' } });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'INSUFFICIENT_STOCK' });
    expect(database.callsOf('recordPayment', wanted.holdId)).toBe(1);
    shop.problems.length = 0; // the refused completion is told as a warning
  });

  test('F22 a payment that overtakes the claim waits for it and confirms', async () => {
    const wanted = request();
    database.slowMs = 100;
    await pay(shop, wanted);
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'recordPayment', 'confirm']);
  });

  test('F22 failed after succeeded changes nothing; failed before it does not end the hold', async () => {
    const first = await hold(shop);
    await pay(shop, first, { status: 'failed' });
    await pay(shop, first);
    expect(await endOf(shop, first.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    database.slowMs = 60;
    const second = await hold(shop);
    await pay(shop, second);
    await pay(shop, second, { status: 'failed' });
    expect(await endOf(shop, second.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });

  test('F27 confirm commits and its answer is lost: the repeat says ALREADY_CONFIRMED, no refund', async () => {
    const wanted = await hold(shop);
    database.instead.confirm = (call) => {
      if (call > 1) return undefined;
      const row = database.rows.get(wanted.holdId)!;
      row.status = 'CONFIRMED';
      row.payments.get('fake/p1')!.settlement = 'APPLIED';
      throw new Error('connection lost after the commit');
    };
    await pay(shop, wanted);
    expect(await endOf(shop, wanted.holdId)).toEqual({
      outcome: 'CONFIRMED',
      holdId: wanted.holdId,
      notes: [],
    });
    expect(database.callsOf('confirm', wanted.holdId)).toBe(2);
  });
});

describe('one inbox, one actor', () => {
  test('F21 whoever asks while the hold ends is answered by it, 10 of 10: the run waits for its handlers', async () => {
    const wanted = await Promise.all(Array.from({ length: 10 }, () => hold(shop)));
    const asked = new Set<string>();
    database.instead.confirm = (_, holdId) => until('asked', () => asked.has(holdId));
    const answers = wanted.map(async (one) => {
      await pay(shop, one, { paymentId: one.holdId });
      await until('confirming', () => database.callsOf('confirm', one.holdId) === 1);
      // Not by `send`, which asks again when a run has left it without a word.
      const asking = await handleOf(shop, one.holdId).startUpdate(cancelUpdate, {
        args: [{ reason: 'changed mind', actor: 'shop' }],
        waitForStage: 'ACCEPTED',
      });
      asked.add(one.holdId);
      return asking.result();
    });
    const already = { outcome: 'ALREADY', status: 'CONFIRMED' };
    expect(await Promise.all(answers)).toEqual(wanted.map(() => already));
  });

  test('H4 payment, cancel and extend within milliseconds: never two activities of a hold at once, result and row agree, 15 of 15', async () => {
    database.slowMs = 40;
    const wanted = await Promise.all(Array.from({ length: 15 }, () => hold(shop)));
    await Promise.all(
      wanted.map(async (one, index) => {
        const asks = [() => pay(shop, one), () => cancel(shop, one), () => extend(shop, one, 5)];
        const order = [...asks.slice(index % 3), ...asks.slice(0, index % 3)];
        const answers = await Promise.all(order.map((ask) => ask()));
        for (const { outcome } of answers) expect(['ANSWERED', 'SENT', 'ENDED']).toContain(outcome);
      }),
    );
    for (const { holdId } of wanted) {
      const { outcome } = await endOf(shop, holdId);
      expect(outcome).toBe(database.rows.get(holdId)!.status);
    }
    expect(database.mostAtOnce).toBe(1);
  });

  test('H8 an extend sent twice under one request id extends once', async () => {
    const wanted = await hold(shop);
    const { endsAt } = database.rows.get(wanted.holdId)!;
    await Promise.all([extend(shop, wanted, 30, 'same'), extend(shop, wanted, 30, 'same')]);
    await extend(shop, wanted, 30, 'same');
    expect(database.callsOf('extend', wanted.holdId)).toBe(1);
    expect(database.rows.get(wanted.holdId)!.endsAt).toBe(endsAt + 30_000);
    await handleOf(shop, wanted.holdId).terminate();
  });
});

describe('what strangers send', () => {
  test('F19 H6 malformed and undecodable signals are dropped: no task fails, and the hold expires on time', async () => {
    database.holdMs = 5000;
    const wanted = await hold(shop);
    const { endsAt } = database.rows.get(wanted.holdId)!;
    const handle = handleOf(shop, wanted.holdId);
    const good = payment();
    const malformed: unknown[][] = [
      [],
      [null],
      [5],
      ['x', 'y'],
      [[good]],
      [{ ...good, paymentId: 7 }],
      [{ ...good, paymentId: '' }],
      [{ ...good, paymentId: 'x'.repeat(256) }],
      [{ ...good, paymentId: 'nul\0' }],
      [{ ...good, provider: 'half \ud800' }],
      [{ ...good, amountMinor: 1.5 }],
      [{ ...good, amountMinor: -1 }],
      [{ ...good, amountMinor: '100' }],
      [{ ...good, amountMinor: 2 ** 53 }],
      [{ ...good, currency: 'eur' }],
      [{ ...good, status: 'done' }],
      [{ ...good, status: {} }],
      [{ ...good, eventId: 5 }],
    ];
    for (const args of malformed) await handle.signal('paymentReceived', ...args);
    await signalRaw(wanted.holdId, 'json/plain', '{"broken');
    await signalRaw(wanted.holdId, 'binary/gob', 'xyz');
    await signalRaw(wanted.holdId, 'json/protobuf', '{}');
    await signalRaw(wanted.holdId, 'json/plain', '{}', 'noSuchSignal');
    await until('all are seen', async () => (await stateOf(shop, wanted.holdId)).dropped === 21);
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(Date.now() - endsAt).toBeLessThan(4000);
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'expire']);
    const { events } = await handle.fetchHistory();
    expect(events!.filter((event) => event.workflowTaskFailedEventAttributes)).toEqual([]);
  });

  test('a payment signal without status means succeeded; a repeated one costs nothing (B07)', async () => {
    database.slowMs = 50;
    const wanted = await hold(shop);
    for (let i = 0; i < 5; i += 1) await pay(shop, wanted);
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.callsOf('recordPayment', wanted.holdId)).toBe(1);
  });

  test('F31 beyond 100 distinct payments they are counted and ignored, and the hold lives on', async () => {
    const wanted = await hold(shop);
    for (let i = 0; i < 105; i += 1)
      await pay(shop, wanted, { paymentId: `p${i}`, status: 'failed' });
    // A later word about a known payment still counts.
    await pay(shop, wanted, { paymentId: 'p0', status: 'refunded' });
    await until(
      'all are handled',
      async () => (await stateOf(shop, wanted.holdId)).waiting === 0,
      20_000,
    );
    expect(await stateOf(shop, wanted.holdId)).toMatchObject({ payments: 100, dropped: 5 });
    await until('recorded', () => database.callsOf('recordPayment', wanted.holdId) === 101);
    expect(await cancel(shop, wanted)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  });

  test('a malformed cancel or extend is refused before it is accepted, and changes nothing', async () => {
    const wanted = await hold(shop);
    const handle = handleOf(shop, wanted.holdId);
    const cause = {
      cause: { message: expect.stringMatching(/malformed (cancel|extend)/) as string },
    };
    for (const request of [
      undefined,
      {},
      { reason: ' ', actor: 'shop' },
      { reason: 'a\0', actor: 'shop' },
    ])
      await expect(handle.executeUpdate('cancel', { args: [request] })).rejects.toMatchObject(
        cause,
      );
    for (const seconds of [0, -5, 1.5, '60', 1e9, null])
      await expect(
        handle.executeUpdate('extend', { args: [{ seconds, actor: 'shop', requestId: 'r' }] }),
      ).rejects.toMatchObject(cause);
    expect(database.namesOf(wanted.holdId)).toEqual(['claim']);
    await handle.terminate();
  });
});

describe('H11 a cancel in Temporal is one more message', () => {
  /** What holds an activity up until the test has said all that it wanted to say. */
  let opened: Promise<void>;
  let open: () => void;
  beforeEach(() => {
    opened = new Promise((resolve) => (open = resolve));
  });

  test('in the wait: the units go back, callers get their answers, the run COMPLETES', async () => {
    const wanted = await hold(shop);
    const handle = handleOf(shop, wanted.holdId);
    database.instead.cancel = (call) => (call === 1 ? opened : undefined);
    await handle.cancel();
    await handle.cancel();
    // In one task with them, questions would come before the cancel.
    await until('cancelling', () => database.callsOf('cancel', wanted.holdId) === 1);
    const asked = [extend(shop, wanted, 30), cancel(shop, wanted)];
    await until('both wait', async () => (await stateOf(shop, wanted.holdId)).waiting === 2);
    open();
    for (const sent of await Promise.all(asked))
      expect(sent).toMatchObject({ answer: { outcome: 'ALREADY', status: 'CANCELLED' } });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CANCELLED' });
    expect((await handle.describe()).status.name).toBe('COMPLETED');
  });

  test('during the confirmation: the payment wins', async () => {
    const wanted = await hold(shop);
    database.instead.confirm = () => opened;
    await pay(shop, wanted);
    await until('confirming', () => database.callsOf('confirm', wanted.holdId) === 1);
    await handleOf(shop, wanted.holdId).cancel();
    open();
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });

  test('during the claim: it is claimed, answered, and given back', async () => {
    const wanted = request();
    database.instead.claim = () => opened;
    const claiming = claimAgain(shop, wanted);
    await until('claiming', () => database.callsOf('claim', wanted.holdId) === 1);
    await handleOf(shop, wanted.holdId).cancel();
    open();
    expect(await claiming).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CANCELLED' });
    expect(database.rows.get(wanted.holdId)!.status).toBe('CANCELLED');
  });
});
