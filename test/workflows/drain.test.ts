import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { endOf, engine, failedTasks, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase, request } from './fakeDatabase.js';
import { mutant } from './mutant.js';
import { claimAgain, hold, pay } from './talk.js';

/**
 * Temporal accepts a payment until the very completion, so the workflow must have looked at its
 * inbox with nothing in between. Each way is tried with the real workflow, and with one that has
 * the fault that it is about.
 */
const database = new FakeDatabase();
let shop: Engine;
/** One `await` between the last look at the inbox and the return. */
let awaiting: Engine;
/** The end right after the last activity, as one writes it at first. */
let hasty: Engine;

const pause = 'await new Promise((done) => setTimeout(done, 600));';

beforeAll(async () => {
  shop = await engine(database.activities());
  awaiting = await engine(database.activities(), {
    workflowBundle: mutant({ 'return end();': `{ ${pause} return end(); }` }),
  });
  hasty = await engine(database.activities(), {
    workflowBundle: mutant({
      'await handle(message);':
        "{ await handle(message); if (board.stage !== 'HELD') return end(); }",
    }),
  });
  await Promise.all([shop, awaiting, hasty].map((one) => one.start()));
});
afterAll(() => Promise.all([shop, awaiting, hasty].map((one) => one.close())));
beforeEach(() => database.reset());
afterEach(() => {
  // A refused completion is told as a warning; any other failed task is a defect.
  const others = shop.problems.splice(0).filter((words) => !/UnhandledCommand/.test(words));
  expect(others).toEqual([]);
});

/** How many second payments Temporal took, and how many of them nobody decided about. */
interface Money {
  taken: number;
  lost: number;
}

function counted(second: Map<string, string>): Money {
  const taken = [...second].filter(([, outcome]) => outcome === 'SENT').map(([holdId]) => holdId);
  const decided = (holdId: string) => {
    const payment = database.rows.get(holdId)?.payments.get(`fake/p2 ${holdId}`);
    // Its refund may have been sent already.
    return ['REFUND_DUE', 'REFUNDED'].includes(payment?.settlement ?? '');
  };
  return { taken: taken.length, lost: taken.filter((holdId) => !decided(holdId)).length };
}

/** A second payment while the first one is being confirmed, which is the hold's last activity. */
async function whileConfirming(by: Engine, count: number): Promise<Money> {
  const second = new Map<string, string>();
  const wanted = await Promise.all(Array.from({ length: count }, () => hold(by)));
  database.instead.confirm = (call, holdId) =>
    call === 1 ? until('the second payment is sent', () => second.has(holdId)) : undefined;
  await Promise.all(
    wanted.map(async (one) => {
      await pay(by, one);
      await until('confirming', () => database.callsOf('confirm', one.holdId) > 0);
      second.set(one.holdId, (await pay(by, one, { paymentId: `p2 ${one.holdId}` })).outcome);
      expect(await endOf(by, one.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    }),
  );
  return counted(second);
}

/** A second payment inside the task that completes the workflow: its last step is a local activity. */
async function insideTheLastTask(by: Engine, count: number): Promise<Money> {
  const second = new Map<string, string>();
  const wanted = new Map(Array.from({ length: count }, () => request()).map((r) => [r.holdId, r]));
  database.instead.claim = async (_, holdId) => {
    const one = wanted.get(holdId)!;
    if (!second.has(holdId)) {
      second.set(holdId, 'asked');
      second.set(holdId, (await pay(by, one, { paymentId: `p2 ${one.holdId}` })).outcome);
    }
    // The hold was sold before: there is nothing left to do.
    const row = { status: 'CONFIRMED', endsAt: 0, requestHash: 'hash-1', payments: new Map() };
    if (!database.rows.has(holdId)) database.rows.set(holdId, row as never);
    const times = { expiresAt: new Date().toISOString(), remainingMs: 1 };
    return { ...times, outcome: 'ALREADY', holdId, requestHash: 'hash-1', status: 'CONFIRMED' };
  };
  await Promise.all(
    [...wanted.values()].map(async (one) => {
      // A refused task takes the question with it; asked again it is answered, or the hold has ended.
      expect(['ANSWERED', 'ENDED']).toContain((await claimAgain(by, one)).outcome);
      expect(await endOf(by, one.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    }),
  );
  return counted(second);
}

/** How many completions Temporal refused, because a payment had come. */
async function completionsRefused(by: Engine): Promise<number> {
  const tasks = await Promise.all([...database.rows.keys()].map((id) => failedTasks(by, id)));
  return tasks.reduce((sum, { refused }) => sum + refused, 0);
}

/** A second payment at the moment when the workflow says that it is done. */
async function atTheReturn(by: Engine, count: number): Promise<Money> {
  const second = new Map<string, string>();
  const wanted = await Promise.all(Array.from({ length: count }, () => hold(by)));
  await Promise.all(
    wanted.map(async (one, index) => {
      await pay(by, one);
      await until('confirmed', () => database.rows.get(one.holdId)!.status === 'CONFIRMED');
      await new Promise((soon) => setTimeout(soon, index % 20));
      second.set(one.holdId, (await pay(by, one, { paymentId: `p2 ${one.holdId}` })).outcome);
      expect(await endOf(by, one.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    }),
  );
  for (const outcome of second.values()) expect(['SENT', 'ENDED']).toContain(outcome);
  return counted(second);
}

describe('F20, F21, B22: a payment that Temporal took before the completion is never lost', () => {
  test('F20, B22: while the last activity runs, 20 of 20 second payments are settled', async () => {
    expect(await whileConfirming(shop, 20)).toEqual({ taken: 20, lost: 0 });
  });

  test('F20: with a return right after the last activity they are lost: the check above notices', async () => {
    const { taken, lost } = await whileConfirming(hasty, 8);
    expect(taken).toBe(8);
    expect(lost).toBeGreaterThan(0);
  });

  test('F20, B22: inside the completing task, 20 of 20 are settled: the server refuses the completion', async () => {
    expect(await insideTheLastTask(shop, 20)).toEqual({ taken: 20, lost: 0 });
    expect(await completionsRefused(shop)).toBeGreaterThan(0);
  });

  test('F20: with one `await` between the last look and the return they are lost', async () => {
    const { taken, lost } = await insideTheLastTask(awaiting, 8);
    expect(taken).toBe(8);
    expect(lost).toBeGreaterThan(0);
  });

  test('F20, F21: at the very return, each is settled or its sender hears ENDED', async () => {
    expect((await atTheReturn(shop, 30)).lost).toBe(0);
  });
});
