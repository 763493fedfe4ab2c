import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
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

describe('R51 a hold is one workflow: claim, then payment or timer, then one end', () => {
  test('R51 R05 a payment in time confirms: claim, record, confirm, and no timer is left', async () => {
    const wanted = await hold(shop);
    expect(await pay(shop, wanted)).toEqual({ outcome: 'SENT' });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'recordPayment', 'confirm']);
  });

  test('R05 a payment that the API has recorded only needs its confirmation; one of which that is not true is recorded first', async () => {
    const wanted = await hold(shop);
    // As the API stores it before it signals.
    const of = { holdId: wanted.holdId, orderNumber: null, eventId: null, payload: {} };
    const event = { ...payment(), ...of, status: 'succeeded' } as const;
    await database.activities().recordPayment(event);
    await pay(shop, wanted, { recorded: true });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'recordPayment', 'confirm']);

    const other = await hold(shop);
    await pay(shop, other, { recorded: true });
    expect(await endOf(shop, other.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(other.holdId)).toEqual([
      'claim',
      'confirm',
      'recordPayment',
      'confirm',
    ]);
  });

  test('R51 R06 nobody pays: the durable timer asks expire once, at the end of the window', async () => {
    database.holdMs = 700;
    const wanted = await hold(shop);
    const { endsAt } = database.rows.get(wanted.holdId)!;
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'expire']);
    expect(Date.now()).toBeGreaterThanOrEqual(endsAt);
    expect(Date.now() - endsAt).toBeLessThan(4000);
  });

  test('R09 R35 cancel answers the caller and ends the hold', async () => {
    const wanted = await hold(shop);
    expect(await cancel(shop, wanted)).toEqual({
      outcome: 'ANSWERED',
      answer: { outcome: 'CANCELLED' },
    });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CANCELLED' });
  });

  test('R03 a refused claim completes with its outcome as the result, and starts no timer', async () => {
    const shortfalls = [{ sku: 'SKU-1', requested: 1, available: 0 }];
    database.instead.claim = () => ({
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls,
      requestHash: 'hash-1',
    });
    const wanted = request();
    const sent = await claimAgain(shop, wanted);
    const refusal = { outcome: 'INSUFFICIENT_STOCK', shortfalls, requestHash: 'hash-1' };
    expect(sent).toEqual({ outcome: 'ANSWERED', answer: refusal });
    expect(await endOf(shop, wanted.holdId)).toEqual(refusal);
    expect(database.namesOf(wanted.holdId)).toEqual(['claim']);
  });

  test('an answer without a hash gets the hash of its request, so that another body is noticed (B19)', async () => {
    database.instead.claim = () => ({ outcome: 'NOT_FOUND', sku: 'SKU-1' });
    const wanted = request({ requestHash: 'mine' });
    const sent = await claimAgain(shop, wanted);
    expect(sent).toMatchObject({ answer: { outcome: 'NOT_FOUND', requestHash: 'mine' } });
  });

  test('extend moves the end of the window', async () => {
    database.holdMs = 1200;
    const wanted = await hold(shop);
    const extended = await extend(shop, wanted, 1);
    expect(extended).toMatchObject({ answer: { outcome: 'EXTENDED' } });
    const { endsAt } = database.rows.get(wanted.holdId)!;
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(Date.now()).toBeGreaterThanOrEqual(endsAt);
    // One look at the clock, at the new end: the old one was forgotten.
    expect(database.callsOf('expire', wanted.holdId)).toBe(1);
  });

  test('H15 nothing else moves it: failed payments every 150 ms do not keep a hold open', async () => {
    database.holdMs = 1200;
    const wanted = await hold(shop);
    const row = database.rows.get(wanted.holdId)!;
    for (let i = 0; row.status === 'HELD' && i < 40; i += 1) {
      await pay(shop, wanted, { paymentId: `p${i}`, status: 'failed' });
      await sleep(150);
    }
    expect(row.status).toBe('EXPIRED');
    expect(Date.now() - row.endsAt).toBeLessThan(3000);
  });
});

describe('time', () => {
  test('F12 a timer that fires early by the clock of Postgres waits on (NOT_DUE), and nothing is given back early', async () => {
    database.holdMs = 4000;
    // The claim says less than is left, so that the timer fires 1.2 s early.
    const wanted = request();
    const claimed = await database.activities().claim(wanted);
    database.instead.claim = () => ({ ...claimed, remainingMs: 300.4 });
    await claimAgain(shop, wanted);
    const { endsAt } = database.rows.get(wanted.holdId)!;
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(Date.now()).toBeGreaterThanOrEqual(endsAt);
    expect(database.callsOf('expire', wanted.holdId)).toBe(2);
  });

  test('F12 an answer without a remaining time never becomes a wait without end', async () => {
    database.holdMs = 500;
    database.instead.expire = (call) => (call === 1 ? { outcome: 'NOT_DUE' } : undefined);
    const wanted = await hold(shop);
    await until('the pause', async () =>
      (await stateOf(shop, wanted.holdId)).notes.some((note) => /no remaining time/.test(note)),
    );
    // Messages are still handled during the pause.
    expect(await cancel(shop, wanted)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CANCELLED' });
    const history = await handleOf(shop, wanted.holdId).fetchHistory();
    const timers = history.events!.flatMap(
      (event) => event.timerStartedEventAttributes?.startToFireTimeout?.seconds?.toNumber() ?? [],
    );
    expect(timers).toEqual([0, 30]);
  });

  test('F14 timer due and payment waiting, with the worker away: the payment wins', async () => {
    database.holdMs = 1500;
    const wanted = await hold(shop);
    await shop.stop();
    await pay(shop, wanted);
    const row = database.rows.get(wanted.holdId)!;
    // The payment is in time by Postgres: its webhook recorded it before the end.
    row.payments.set('fake/p1', {
      provider: 'fake',
      paymentId: 'p1',
      status: 'succeeded',
      inTime: true,
      settlement: null,
    });
    await until('the timer is due', () => Date.now() > row.endsAt + 300);
    await shop.start();
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.callsOf('expire', wanted.holdId)).toBe(0);
  });
});

describe('a payment that is in the way (PAYMENT_PENDING)', () => {
  const pending = { provider: 'fake', paymentId: 'lost' };
  const record = (holdId: string) =>
    database.rows.get(holdId)!.payments.set('fake/lost', {
      ...pending,
      status: 'succeeded',
      inTime: true,
      settlement: null,
    });

  test('R05 an overdue hold whose signal was lost is confirmed by its recorded payment, not expired', async () => {
    database.holdMs = 1500;
    const wanted = await hold(shop);
    record(wanted.holdId);
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'expire', 'confirm']);
  });

  test('a cancel meets a recorded payment: it is confirmed first, and the caller hears that', async () => {
    const wanted = await hold(shop);
    record(wanted.holdId);
    expect(await cancel(shop, wanted)).toEqual({
      outcome: 'ANSWERED',
      answer: { outcome: 'ALREADY', status: 'CONFIRMED' },
    });
  });

  test('H9 the same payment pending again is given up with a pause and a word: 2 rounds, not 22', async () => {
    database.holdMs = 1500;
    database.instead.confirm = () => ({ outcome: 'MISMATCH' });
    const wanted = await hold(shop);
    record(wanted.holdId);
    await until('the word', async () =>
      (await stateOf(shop, wanted.holdId)).notes.includes(
        'payment fake/lost stays pending: given up for now',
      ),
    );
    expect(database.callsOf('expire', wanted.holdId)).toBe(2);
    expect(database.callsOf('confirm', wanted.holdId, 'hold')).toBe(1);
    // The brake holds for other messages too, and the caller gets an answer.
    expect(await cancel(shop, wanted)).toEqual({
      outcome: 'ANSWERED',
      answer: { outcome: 'PAYMENT_PENDING', payment: pending },
    });
    expect(database.callsOf('confirm', wanted.holdId, 'hold')).toBe(1);
    await handleOf(shop, wanted.holdId).terminate();
  });

  test('H9 a payment that waits for itself is given up too', async () => {
    database.instead.confirm = () => ({
      outcome: 'PAYMENT_PENDING',
      payment: { provider: 'fake', paymentId: 'p1' },
    });
    const wanted = await hold(shop);
    await pay(shop, wanted);
    await until('the word', async () =>
      (await stateOf(shop, wanted.holdId)).notes.some((note) => note.includes('waits for')),
    );
    expect(database.callsOf('confirm', wanted.holdId)).toBeLessThan(6);
    await handleOf(shop, wanted.holdId).terminate();
  });
});
