import pg from 'pg';
import { expect, inject, it } from 'vitest';
import type { Book } from '../../cli/sandbox/book.js';
import { freshDatabase } from '../setup/database.js';
import { judge, taken } from '../payments/judge.js';
import { play, vacuous } from '../payments/play.js';

/** The short form of `npm run test:payments`. */
it(
  'G8, F16, F17, F18, F25, B08: each of 60 payments around the deadline ends confirmed, accepted late or refunded once, with API and worker killed',
  { timeout: 240_000 },
  async () => {
    const database = await freshDatabase();
    try {
      const played = await play({
        databaseUrl: database.url,
        temporalAddress: inject('temporalAddress'),
        bundlePath: inject('bundlePath'),
        payments: 60,
        kills: 2,
        seed: Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000),
        patienceMs: 120_000,
      });
      const { book, ...counts } = played;
      const said = JSON.stringify(counts);
      expect(played.wrong, said).toEqual([]);
      expect(vacuous(played, 0.05), said).toEqual([]);
      const { payments, confirmed, acceptedLate, refunded, neverHeard } = played;
      expect(confirmed + acceptedLate + refunded + neverHeard).toBe(payments);
      expect(payments).toBe(60);
      expect(played.kills).toBe(4);
      await caughtWhenWrong(database.url, book);
    } finally {
      await database.drop();
    }
  },
);

/** What the check is there for, written into the provider's book: each must be named. */
async function caughtWhenWrong(url: string, book: Book): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const one = async (settlement: string) => {
    const text = 'select payment_id as id from tahan.payments where settlement = $1';
    const { rows } = await client.query<{ id: string }>(text, [settlement]);
    return rows.find(({ id }) => taken(book, id))!.id;
  };
  const [owner, refunded] = await Promise.all([one('APPLIED'), one('REFUNDED')]).finally(() =>
    client.end(),
  );
  const [refund] = book.refundsOf(refunded);
  for (const payment_id of [owner, refunded])
    book.record({ kind: 'refund', refund: { ...refund!, payment_id } });
  // A payment that the API has taken, and that is not there.
  book.record({ kind: 'charge', charge: { ...book.charges.get(owner)!, payment_id: 'lost' } });
  for (const event of book.eventsOf(owner))
    book.record({ kind: 'event', event: { ...event, id: `${event.id}-2`, payment_id: 'lost' } });
  expect((await judge(url, book)).wrong.sort()).toEqual(
    [
      `${owner}: both: APPLIED, and 1 refunds at the provider`,
      `${refunded}: REFUNDED, and 2 refunds at the provider`,
      'lost: the API has taken it, but it is not recorded as succeeded',
    ].sort(),
  );
}
