import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { connect, send } from '../../workflows/contract.js';
import { endOf, engine, handleOf, stateOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase, request } from './fakeDatabase.js';
import { forward } from './proxy.js';
import { cancel, claimAgain, extend, hold, pay, withinMs } from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());
beforeEach(() => database.reset());
afterEach(() => expect(shop.problems.splice(0)).toEqual([]));

/** A run that ended for good: the next message has to start another. */
async function terminate(holdId: string): Promise<void> {
  await handleOf(shop, holdId).terminate('by an operator');
}

describe('H2 a claim that came too late', () => {
  test('F8, H2: the caller hears TOO_LATE, and the same key with a new deadline gets the units', async () => {
    database.instead.claim = (call) => (call === 1 ? { outcome: 'CLAIM_TOO_LATE' } : undefined);
    const wanted = request();
    expect(await claimAgain(shop, wanted)).toEqual({ outcome: 'TOO_LATE' });
    expect((await handleOf(shop, wanted.holdId).describe()).status.name).toBe('FAILED');
    const again = { ...wanted, claimDeadline: new Date(Date.now() + 3500).toISOString() };
    expect(await claimAgain(shop, again)).toMatchObject({ answer: { outcome: 'HELD' } });
    await terminate(wanted.holdId);
  });

  test("who joined another's dying run is started once more, with its own deadline", async () => {
    const first = request();
    const second = { ...first, claimDeadline: new Date(Date.now() + 60_000).toISOString() };
    database.instead.claim = async (call) => {
      if (call > 1) return undefined;
      await sleep(500);
      return { outcome: 'CLAIM_TOO_LATE' };
    };
    const firstAnswer = claimAgain(shop, first);
    await until('claiming', () => database.callsOf('claim', first.holdId) === 1);
    expect(await claimAgain(shop, second)).toMatchObject({ answer: { outcome: 'HELD' } });
    // The first may hear TOO_LATE, or find the second's hold, which is the same one.
    expect(['TOO_LATE', 'ANSWERED']).toContain((await firstAnswer).outcome);
    await terminate(first.holdId);
  });

  test('messages that wait in the dying run are answered: nothing is left without a word', async () => {
    database.instead.claim = async () => {
      await sleep(400);
      return { outcome: 'CLAIM_TOO_LATE' };
    };
    const wanted = request();
    const claiming = claimAgain(shop, wanted);
    await until('claiming', () => database.callsOf('claim', wanted.holdId) === 1);
    const [cancelled] = await Promise.all([cancel(shop, wanted), pay(shop, wanted)]);
    expect(cancelled).toEqual({ outcome: 'ANSWERED', answer: { outcome: 'MISSING' } });
    expect(await claiming).toEqual({ outcome: 'TOO_LATE' });
    expect(database.callsOf('recordPayment', wanted.holdId)).toBe(1);
    shop.problems.length = 0; // the refused completion is told as a warning
  });
});

describe('F1 a claim whose answer is lost', () => {
  test('30 callers of one key at once: one run, one claim, one answer (R08)', async () => {
    const wanted = request();
    database.slowMs = 50;
    const answers = await Promise.all(Array.from({ length: 30 }, () => claimAgain(shop, wanted)));
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(answers[0]).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(database.callsOf('claim', wanted.holdId)).toBe(1);
    await terminate(wanted.holdId);
  });

  test('F29 B19: 30 callers of one key with two bodies at once: one run, one claim, and each sees whose answer it is', async () => {
    const wanted = request();
    database.slowMs = 50;
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        claimAgain(shop, { ...wanted, requestHash: index % 2 === 0 ? 'hash-1' : 'hash-2' }),
      ),
    );
    const [first] = answers;
    expect(first).toMatchObject({ answer: { outcome: 'HELD' } });
    // The hash is that of the one who came first: all others with that body have the hold.
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    const { requestHash } = database.rows.get(wanted.holdId)!;
    expect(first).toMatchObject({ answer: { requestHash } });
    expect(database.callsOf('claim', wanted.holdId)).toBe(1);
    await terminate(wanted.holdId);
  });

  test('B23 F29: the caller dies after the start and before the answer: the repeat of the key gets the same run', async () => {
    const wanted = request();
    let answer = () => {};
    const answered = new Promise<void>((resolve) => (answer = resolve));
    database.instead.claim = () => answered;
    const way = await forward(0, inject('temporalAddress'));
    const dying = connect({ address: way.address });
    const caller = { ...shop, holds: { ...shop.holds, client: dying.client } };
    const lost = claimAgain(caller, wanted);
    await until('claiming', () => database.callsOf('claim', wanted.holdId) === 1);
    const { runId } = await handleOf(shop, wanted.holdId).describe();
    way.close();
    expect(['NO_ANSWER', 'UNAVAILABLE']).toContain((await lost).outcome);
    await dying.close();
    const again = claimAgain(shop, wanted);
    answer();
    expect(await again).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(database.callsOf('claim', wanted.holdId)).toBe(1);
    expect((await handleOf(shop, wanted.holdId).describe()).runId).toBe(runId);
    await terminate(wanted.holdId);
  });

  test('H3 the local tries end, the outcome is unknown: a regular activity asks on, and an operator sees it fail', async () => {
    database.instead.claim = (call) => {
      if (call <= 8) throw new Error('Postgres is away');
      return undefined;
    };
    const wanted = request();
    const claiming = claimAgain(shop, wanted);
    await until('claiming', () => database.callsOf('claim', wanted.holdId) > 0);
    await until(
      'a pending claim with its error',
      async () => {
        const { raw } = await handleOf(shop, wanted.holdId).describe();
        const [pending] = raw.pendingActivities ?? [];
        return (
          pending?.activityType?.name === 'claim' &&
          pending.attempt! > 1 &&
          /Postgres is away/.test(pending.lastFailure?.message ?? '')
        );
      },
      15_000,
    );
    expect(await claiming).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(database.callsOf('claim', wanted.holdId)).toBe(9);
    await terminate(wanted.holdId);
  });
});

describe('F5 F28 H1 a hold whose workflow was terminated is adopted by the next message', () => {
  test('by extend', async () => {
    const wanted = await hold(shop);
    await terminate(wanted.holdId);
    expect(await extend(shop, wanted, 60)).toMatchObject({ answer: { outcome: 'EXTENDED' } });
    expect((await stateOf(shop, wanted.holdId)).stage).toBe('HELD');
    await terminate(wanted.holdId);
  });

  test('by cancel', async () => {
    const wanted = await hold(shop);
    await terminate(wanted.holdId);
    expect(await cancel(shop, wanted)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  });

  test('by a payment, in time', async () => {
    const wanted = await hold(shop);
    await terminate(wanted.holdId);
    expect(await pay(shop, wanted)).toEqual({ outcome: 'SENT' });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });

  test('by a plain start, with the same end: it expires when it would have', async () => {
    database.holdMs = 1200;
    const wanted = await hold(shop);
    const { endsAt } = database.rows.get(wanted.holdId)!;
    await terminate(wanted.holdId);
    const sent = await send(shop.holds, wanted, { kind: 'start' }, { withinMs });
    expect(sent).toEqual({ outcome: 'SENT' });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(database.rows.get(wanted.holdId)!.endsAt).toBe(endsAt);
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'claim', 'expire']);
  });

  test('in the middle of its claim: the waiting caller is started again and gets the hold', async () => {
    database.slowMs = 300;
    const wanted = request();
    const claiming = claimAgain(shop, wanted);
    await until('claiming', () => database.callsOf('claim', wanted.holdId) === 1);
    await terminate(wanted.holdId);
    const sent = await claiming;
    expect(sent.outcome).toBe('ANSWERED');
    expect(['HELD', 'ALREADY']).toContain('answer' in sent && sent.answer.outcome);
    await terminate(wanted.holdId);
    shop.problems.length = 0; // the task of the terminated run has nobody to report to
  });

  test('by a request with the same key and another body: it is refused, and the hold still gets its workflow (B19)', async () => {
    database.holdMs = 1500;
    const wanted = await hold(shop);
    await terminate(wanted.holdId);
    // The fixed update id reads the dead run's answer; its hash tells the caller whose it is.
    expect(await claimAgain(shop, { ...wanted, requestHash: 'other' })).toMatchObject({
      answer: { outcome: 'HELD', requestHash: 'hash-1' },
    });
    await send(shop.holds, { ...wanted, requestHash: 'other' }, { kind: 'start' }, { withinMs });
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(database.namesOf(wanted.holdId)).toEqual(['claim', 'claim', 'expire', 'expire']);
  });

  test('F46 a hold whose row is gone ends MISSING and not as a success', async () => {
    database.holdMs = 1500;
    const wanted = await hold(shop);
    database.rows.clear();
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'MISSING' });
  });
});
