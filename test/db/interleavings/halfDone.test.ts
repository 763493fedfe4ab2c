import { expect, it } from 'vitest';
import { cancel } from '../../../db/cancel.js';
import { claim } from '../../../db/claim.js';
import { confirm } from '../../../db/confirm.js';
import { expire } from '../../../db/expire.js';
import { release } from '../../../db/release.js';
import { returnSale } from '../../../db/returnSale.js';
import { describeEachPostgres } from '../../setup/database.js';
import { bins, counts, everything, statusOf } from '../books.js';
import { said, whenWaiting } from '../rivals.js';
import { openShop } from '../shop.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const forgetsABin: WrongForm = {
  name: 'the units of one bin come back',
  changes: {
    'basics.sql': [
      [
        'where a.hold_id = p_hold_id order by a.bin_id\n',
        'where a.hold_id = p_hold_id order by a.bin_id limit 1\n',
      ],
    ],
  },
};
const forgetsTheUnits: WrongForm = {
  name: 'the hold is closed, its units are forgotten',
  changes: {
    'basics.sql': [['where a.hold_id = p_hold_id order by a.bin_id\n', 'where false\n']],
  },
};

describeEachPostgres('nothing is half done', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });

  /** A trigger on a table that stops there: it waits at the gate of the test, or breaks the call. */
  async function stopAt(shop: Shop, table: string, what: 'wait' | 'break'): Promise<void> {
    const body =
      what === 'break' ? `raise exception 'broken'` : 'perform pg_advisory_xact_lock(4242)';
    await shop.query(`create function tahan.stop() returns trigger language plpgsql as $$ begin ${body}; return new; end $$;
      create trigger stop before insert or update on tahan.${table} for each row execute function tahan.stop()`);
  }
  const goOn = (shop: Shop) => shop.query('drop function tahan.stop cascade');

  const releases = {
    right: [`select tahan.cancel($1, 'changed my mind', 'buyer') as answer`],
    // As a program does it that says "delete the hold" and "add to the stock" one after the other.
    wrong: [
      `update holds set status = 'CANCELLED', closed_at = now() where id = $1`,
      `update bins b set available = b.available + a.quantity, held = b.held - a.quantity
       from allocations a where a.bin_id = b.id and a.hold_id = $1`,
    ],
  };
  /** Kills the backend of a release while it gives back, then repeats the release. */
  async function killedRelease(shop: Shop, statements: string[]) {
    const sku = await shop.product([1, 1]);
    const hold = await shop.hold({ [sku]: 2 });
    const gate = await shop.session();
    await gate.query('select pg_advisory_lock(4242)');
    await stopAt(shop, 'bins', 'wait');
    const client = await shop.session();
    const [pid] = (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows;
    const releasing = said(
      (async () => {
        for (const text of statements) await client.query(text, [hold]);
        return { outcome: 'done' };
      })(),
    );
    await whenWaiting(shop, statements.at(-1)!.slice(0, 20), 1, releasing);
    await shop.query('select pg_terminate_backend($1)', [pid!.pid]);
    const killed = await releasing;
    await gate.query('select pg_advisory_unlock(4242)');
    await goOn(shop);
    const left = [await statusOf(shop, hold), (await counts(shop, sku)).held];
    const again = await said(cancel(shop.db, hold, 'changed my mind', 'buyer'));
    return { killed, left, again, bins: await bins(shop, sku) };
  }

  decided(
    'F10: a release whose backend is killed in the middle has not happened, and the repeat does all of it',
    (shop) => killedRelease(shop, releases.right),
    {
      right: {
        killed: '57P01',
        left: ['HELD', 2],
        again: 'CANCELLED',
        bins: [
          [1, 0, 0],
          [1, 0, 0],
        ],
      },
      wrong: [],
    },
  );

  it('F10: as two statements it loses the units for ever (caught: release in two statements)', async () => {
    const shop = await openShop(version);
    try {
      expect(await killedRelease(shop, releases.wrong)).toEqual({
        killed: '57P01',
        left: ['CANCELLED', 2],
        again: 'ALREADY',
        bins: [
          [0, 1, 0],
          [0, 1, 0],
        ],
      });
    } finally {
      await shop.close();
    }
  });

  const ways: Record<string, (shop: Shop, hold: string, sku: string) => Promise<string>> = {
    cancelled: (shop, hold) => said(cancel(shop.db, hold, 'changed my mind', 'buyer')),
    expired: async (shop, hold) => {
      await shop.shiftClock(601_000);
      return said(expire(shop.db, hold));
    },
    'taken back by a claim': async (shop, hold, sku) => {
      await shop.shiftClock(601_000);
      return said(shop.claim({ [sku]: 1 })).then(() => statusOf(shop, hold) as Promise<string>);
    },
  };
  decided(
    'F49, R06: whichever way a hold ends, each of its bins has its units back',
    async (shop) => {
      const seen: Record<string, number> = {};
      for (const [name, end] of Object.entries(ways)) {
        const sku = await shop.product([2, 2, 2]);
        const hold = await shop.hold({ [sku]: 6 });
        await end(shop, hold, sku);
        seen[name] = (await counts(shop, sku)).available;
        await shop.shiftClock(0);
      }
      return seen;
    },
    {
      right: { cancelled: 6, expired: 6, 'taken back by a claim': 5 },
      wrong: [
        [forgetsABin, { cancelled: 2, expired: 2, 'taken back by a claim': 1 }],
        [forgetsTheUnits, { cancelled: 0, expired: 0, 'taken back by a claim': 0 }],
      ],
    },
  );

  const steps = {
    claim: ['holds', 'hold_lines', 'allocations', 'bins', 'movements', 'orders'],
    confirm: ['bins', 'movements', 'hold_lines', 'holds', 'payments'],
    cancel: ['bins', 'movements', 'hold_lines', 'holds'],
    release: ['bins', 'movements', 'allocations', 'hold_lines', 'orders', 'requests'],
    return: ['bins', 'movements', 'allocations', 'hold_lines', 'refunds', 'requests'],
  };
  decided(
    'F49, R03, B13, R09: a claim, a confirmation, a cancel, a release and a return that break at any of their steps change nothing, and work when all is whole again',
    async (shop) => {
      const sku = await shop.product([80, 80], { priceMinor: 500, currency: 'EUR' });
      const order = { order: true };
      const wrong: string[] = [];
      for (const [name, tables] of Object.entries(steps)) {
        for (const table of tables) {
          const hold = await shop.hold({ [sku]: 2 }, order);
          const request = await shop.request({ [sku]: 1 }, order);
          const paid = ['confirm', 'return'].includes(name);
          const payment = paid ? await shop.pay(hold, { amountMinor: 1000 }) : null;
          if (name === 'return') await confirm(shop.db, hold, payment!);
          const by = { reason: 'broken', actor: 'x', requestId: 'x' };
          const part = { lines: [{ sku, quantity: 1 }], ...by };
          const calls: Record<string, () => Promise<string>> = {
            claim: () => said(claim(shop.db, request)),
            confirm: () => said(confirm(shop.db, hold, payment!)),
            cancel: () => said(cancel(shop.db, hold, 'changed my mind', 'buyer')),
            release: () => said(release(shop.db, hold, part)),
            return: () =>
              said(
                returnSale(shop.db, { holdId: hold, ...part, restock: true, refundMinor: null }),
              ),
          };
          const before = JSON.stringify(await everything(shop));
          await stopAt(shop, table, 'break');
          const broken = await calls[name]!();
          await goOn(shop);
          const changed = JSON.stringify(await everything(shop)) !== before;
          const then = await calls[name]!();
          const done = {
            ...{ claim: 'HELD', confirm: 'CONFIRMED', cancel: 'CANCELLED' },
            ...{ release: 'RELEASED', return: 'RETURNED' },
          }[name];
          if (broken !== 'P0001' || changed || then !== done) {
            wrong.push(`${name} broken at ${table}: ${broken}, then ${then}`);
          }
        }
      }
      return wrong;
    },
    {
      right: [],
      wrong: [
        [
          {
            name: 'giving back does what it can',
            changes: {
              'basics.sql': [
                [
                  "    perform tahan.move_units(v_part.bin_id, 'release_reservation', v_part.quantity, p_hold_id, null,\n      p_reason, p_actor, '{}', p_now);",
                  `    begin
                       perform tahan.move_units(v_part.bin_id, 'release_reservation', v_part.quantity, p_hold_id, null,
                         p_reason, p_actor, '{}', p_now);
                     exception when others then null;
                     end;`,
                ],
              ],
            },
          },
          [
            'cancel broken at bins: CANCELLED, then ALREADY',
            'cancel broken at movements: CANCELLED, then ALREADY',
          ],
        ],
      ],
    },
  );
});
