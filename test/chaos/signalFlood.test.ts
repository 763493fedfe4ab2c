import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { endOf, engine, handleOf, until } from '../workflows/engine.js';
import type { Engine } from '../workflows/engine.js';
import { FakeDatabase } from '../workflows/fakeDatabase.js';
import { cancel, hold, pay } from '../workflows/talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());

describe('F31: 10,050 signals at one hold', () => {
  test(
    'F31: Temporal takes 10,000 and refuses the rest; the hold still expires by itself, a payment is refused with a word, and others notice nothing',
    { timeout: 300_000 },
    async () => {
      database.holdMs = 150_000;
      const flooded = await hold(shop);
      const handle = handleOf(shop, flooded.holdId);
      const refused: string[] = [];
      let taken = 0;
      for (let sent = 0; sent < 10_050; sent += 50)
        await Promise.all(
          Array.from({ length: Math.min(50, 10_050 - sent) }, () =>
            handle.signal('paymentReceived', 'nothing').then(
              () => (taken += 1),
              (error: Error) =>
                refused.push(error.message, String((error.cause as Error | undefined)?.message)),
            ),
          ),
        );
      console.log({ taken, refused: refused.length, why: refused[0] });
      const late = await pay(shop, flooded);
      const asked = await cancel(shop, await hold(shop));
      console.log({ late, asked });
      expect(asked).toMatchObject({ answer: { outcome: 'CANCELLED' } });
      const other = await hold(shop);
      await pay(shop, other);
      expect(await endOf(shop, other.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
      const row = database.rows.get(flooded.holdId)!;
      await until('it has expired', () => row.status === 'EXPIRED', 180_000);
      expect(Date.now() - row.endsAt).toBeLessThan(10_000);
      expect(await endOf(shop, flooded.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    },
  );
});
