import { tsToMs } from '@temporalio/common/lib/time.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { workflowId } from '../../workflows/contract.js';
import { endOf, engine, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import { Gates } from './gates.js';
import { cancel, hold, pay } from './talk.js';

const database = new FakeDatabase();
const gates = new Gates();
let shop: Engine;

beforeAll(async () => {
  // Fewer places than there are expiries in the test, of any kind.
  const few = { tasks: 4, changes: 2, expiries: 2, endsPerSecond: 1 };
  shop = await engine(gates.wrap(database.activities()), few);
  await shop.start();
});
afterAll(async () => {
  await shop.close();
  expect(shop.problems).toEqual([]);
});

it('F35: expiries that stand still give their workflow tasks back within 2 s and wait on their own queue: payments are confirmed and holds cancelled meanwhile', async () => {
  const [paid, unwanted] = [await hold(shop), await hold(shop)];
  database.holdMs = 500;
  const due = await Promise.all(Array.from({ length: 8 }, () => hold(shop)));
  const stop = ({ holdId }: { holdId: string }) => gates.stopAt(holdId, 'expire', 'before');
  const first = due.map(stop);
  // Each is stopped again when it is asked for on its own queue.
  const again = due.map((each, index) =>
    until(`${index} stands still`, () => first[index]!.reached, 20_000).then(() => stop(each)),
  );
  await until('four stand still', () => first.filter(({ reached }) => reached).length >= 4);

  const began = performance.now();
  await pay(shop, paid);
  expect(await endOf(shop, paid.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  expect(await cancel(shop, unwanted)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  expect(performance.now() - began).toBeLessThan(5000);

  const patient = await Promise.all(again);
  await until('two stand on their own queue', () => standing(patient) === 2);
  expect(first.some(({ passed }) => passed)).toBe(false);
  for (const one of [...first, ...patient]) one.open();
  const ends = await Promise.all(due.map(({ holdId }) => endOf(shop, holdId)));
  expect(new Set(ends.map(({ outcome }) => outcome))).toEqual(new Set(['EXPIRED']));
});

it('F13, F35: holds that end together look at their end one after the other, the first one on time', async () => {
  // The first one takes longer, and what it takes is added to its time.
  database.holdMs = 60_000;
  await hold(shop);
  const endsAt = Date.now() + 5000;
  const timers: number[] = [];
  for (let made = 0; made < 6; made += 1) {
    database.holdMs = endsAt - Date.now();
    const { holdId } = await hold(shop);
    timers.push((await timerOf(holdId)) - endsAt);
  }
  // None before its end. Their ends differ by some ms and may lie in two tenths of a second, of which each
  // has a turn at the end itself; the other four follow from a second later on.
  timers.sort((a, b) => a - b);
  expect(timers[0], `${timers.join(', ')}`).toBeGreaterThanOrEqual(0);
  expect(timers[0]).toBeLessThan(1000);
  expect(timers[5]! - timers[1]!, `${timers.join(', ')}`).toBeGreaterThan(900);
});

/** When the timer of this hold fires, by Temporal's clock. */
async function timerOf(holdId: string): Promise<number> {
  const handle = shop.holds.client.workflow.getHandle(workflowId(holdId));
  const { events } = await handle.fetchHistory();
  const started = events!.find(({ timerStartedEventAttributes }) => timerStartedEventAttributes)!;
  const after = started.timerStartedEventAttributes!.startToFireTimeout!;
  return tsToMs(started.eventTime) + tsToMs(after);
}

function standing(stopped: { reached: boolean }[]): number {
  return stopped.filter(({ reached }) => reached).length;
}
