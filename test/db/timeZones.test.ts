import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import { listHolds } from '../../db/readHold.js';
import { describeEachPostgres } from '../setup/database.js';
import { sharedShop } from './shop.js';

/** When the clocks change in Los Angeles and in Berlin, forward and back. */
const changes = [
  '2027-03-14T10:00:00Z',
  '2026-11-01T09:00:00Z',
  '2027-03-28T01:00:00Z',
  '2026-10-25T01:00:00Z',
];
/** So that they change during the 600 s of the hold, and during the 300 s of its extension. */
const moments = changes.flatMap((at) => [Date.parse(at) - 10_000, Date.parse(at) - 660_000]);
const zones = ['America/Los_Angeles', 'Australia/Brisbane', 'Europe/Berlin', 'Asia/Kathmandu'];

describeEachPostgres('time zones', (version) => {
  const shop = sharedShop(version);

  it('B10: in a session of any zone, as the clocks change, a claim lasts 600 s and an extension adds 300 s, and all times end in Z', async () => {
    for (const zone of zones) {
      const session = await shop.session();
      await session.query(`set timezone = '${zone}'`);
      const ask = async (text: string, values: unknown[]) =>
        (await session.query<{ answer: Record<string, unknown> }>(text, values)).rows[0]!.answer;
      for (const moment of moments) {
        const sku = await shop.product([1]);
        await shop.shiftClock(moment - Date.now());
        const claimed = await ask(
          `select tahan.claim($1::uuid, 'buyer', $1::uuid::text, 'hash', $2, null, $3, false, '{}') as answer`,
          [randomUUID(), JSON.stringify([{ sku, quantity: 1 }]), await shop.now(3500)],
        );
        expect(claimed).toMatchObject({ outcome: 'HELD' });
        const hold = claimed['holdId'];
        const began = Number(claimed['remainingMs']);
        expect(began).toBeGreaterThan(590_000);
        expect(began).toBeLessThanOrEqual(600_000);
        const extended = await ask(`select tahan.extend($1, 300, 'x', 'buyer') as answer`, [hold]);
        expect(extended).toMatchObject({ outcome: 'EXTENDED' });
        const shown = await ask(`select tahan.show_hold($1) as answer`, [hold]);
        const created = Date.parse(shown['createdAt'] as string);
        expect(created - moment).toBeGreaterThanOrEqual(0);
        expect(created - moment).toBeLessThan(60_000);
        for (const [answer, seconds] of [
          [claimed, 600],
          [extended, 900],
          [shown, 900],
        ] as const) {
          expect(answer['expiresAt']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
          expect(Date.parse(answer['expiresAt'] as string) - created).toBe(seconds * 1000);
        }
        await shop.shiftClock(created + 899_000 - Date.now());
        const early = await ask(`select tahan.expire($1) as answer`, [hold]);
        expect(early).toMatchObject({ outcome: 'NOT_DUE' });
        expect(early['remainingMs']).toBeLessThanOrEqual(1001);
        await shop.shiftClock(created + 900_001 - Date.now());
        expect(await ask(`select tahan.expire($1) as answer`, [hold])).toEqual({
          outcome: 'EXPIRED',
        });
      }
    }
  });

  it('B10: a connection speaks UTC and ISO, whatever the database or the role has as its default, and its pages go on', async () => {
    const sku = await shop.product([2]);
    const holds = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })].reverse();
    const set = (what: string) =>
      `execute format('alter ${what}', current_database(), current_user)`;
    await shop.query(`do $$ begin
      ${set(`database %1$I set timezone = ''America/Los_Angeles''`)};
      ${set(`role %2$I in database %1$I set timezone = ''Australia/Brisbane''`)};
      ${set(`database %1$I set datestyle = ''German, DMY''`)};
    end $$`);
    const db = openDatabase({ url: shop.url, takeAppRole: true });
    try {
      const first = await listHolds(db, { sku, limit: 1 });
      const rest = await listHolds(db, { sku, limit: 1, cursor: first.nextCursor! });
      expect([...first.items, ...rest.items].map(({ id }) => id)).toEqual(holds);
      for (const pool of [db.claims, db.changes, db.reads]) {
        const text = `select current_setting('timezone') || ' ' || current_setting('datestyle') as is`;
        const [row] = await pool.rows<{ is: string }>({ text });
        expect(row!.is).toMatch(/^UTC ISO/);
      }
    } finally {
      await db.close();
    }
  });
});
