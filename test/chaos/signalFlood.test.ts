import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { endOf, engine, handleOf } from '../workflows/engine.js';
import type { Engine } from '../workflows/engine.js';
import { FakeDatabase } from '../workflows/fakeDatabase.js';
import { hold, pay } from '../workflows/talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  database.holdMs = 90_000;
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());

describe('F31: 10,050 signals at one hold', () => {
  test(
    'F31: with the worker away Temporal takes 10,000 and refuses the rest; when it is back the hold expires by itself, and others notice nothing',
    { timeout: 300_000 },
    async () => {
      const flooded = await hold(shop);
      const handle = handleOf(shop, flooded.holdId);
      await shop.stop();
      const refused = new Set<string>();
      let taken = 0;
      const signal = () =>
        handle.signal('paymentReceived', 'nothing').then(
          () => (taken += 1),
          (error: Error) => refused.add(`${error.message}: ${(error.cause as Error).message}`),
        );
      for (let sent = 0; sent < 10_050; sent += 150)
        await Promise.all(Array.from({ length: 150 }, signal));
      expect(taken).toBe(10_000);
      expect([...refused].join()).toMatch(/signal/);
      // A payment is refused too, with a word: its sender repeats, and Postgres has it meanwhile.
      expect((await pay(shop, flooded)).outcome).toBe('UNAVAILABLE');
      const row = database.rows.get(flooded.holdId)!;
      row.endsAt = Date.now();
      await shop.start();
      const other = await hold(shop);
      await pay(shop, other);
      expect(await endOf(shop, other.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
      expect(await endOf(shop, flooded.holdId)).toMatchObject({ outcome: 'EXPIRED' });
      expect(row.status).toBe('EXPIRED');
    },
  );
});
