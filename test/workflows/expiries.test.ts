import { afterAll, beforeAll, expect, it } from 'vitest';
import { endOf, engine, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import { Gates } from './gates.js';
import { cancel, hold, pay } from './talk.js';

const database = new FakeDatabase();
const gates = new Gates();
let shop: Engine;

beforeAll(async () => {
  // Fewer slots than there are expiries in the test.
  shop = await engine(gates.wrap(database.activities()), { changes: 2, expiries: 2 });
  await shop.start();
});
afterAll(async () => {
  await shop.close();
  expect(shop.problems).toEqual([]);
});

it('F35: while expiries take every slot of theirs and more wait, payments are confirmed and holds cancelled', async () => {
  const [paid, unwanted] = [await hold(shop), await hold(shop)];
  database.holdMs = 500;
  const due = await Promise.all(Array.from({ length: 6 }, () => hold(shop)));
  const stopped = due.map(({ holdId }) => gates.stopAt(holdId, 'expire', 'before'));
  await until('two expiries stand still', () => stopped.filter((one) => one.reached).length === 2);
  await pay(shop, paid);
  expect(await endOf(shop, paid.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  expect(await cancel(shop, unwanted)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
  expect(stopped.filter((one) => one.reached)).toHaveLength(2);
  for (const one of stopped) one.open();
  const ends = await Promise.all(due.map(({ holdId }) => endOf(shop, holdId)));
  expect(new Set(ends.map(({ outcome }) => outcome))).toEqual(new Set(['EXPIRED']));
});
