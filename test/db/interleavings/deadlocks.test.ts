import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { claim } from '../../../db/claim.js';
import { expire } from '../../../db/expire.js';
import { describeEachPostgres } from '../../setup/database.js';
import { bins, spreadOrder, statusOf } from '../books.js';
import { call, claimCall, other, otherOnBins, said, whenBehind, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const inCartOrder: WrongForm = {
  name: 'bins are locked in the order of the cart',
  changes: {
    'claim.sql': [
      [
        'array_agg(m.sku order by m.sku) as skus, array_agg(m.quantity order by m.sku) as quantities',
        'array_agg(m.sku order by m.place) as skus, array_agg(m.quantity order by m.place) as quantities',
      ],
      [
        'min(l.quantity) as smallest\n    from jsonb_to_recordset(v_lines) as l (sku text, quantity integer)',
        'min(l.quantity) as smallest, min(l.place) as place\n    from rows from (jsonb_to_recordset(v_lines) as (sku text, quantity integer)) with ordinality as l (sku, quantity, place)',
      ],
      [
        'from bins b where b.sku = any (p_skus) order by b.sku, b.id\n',
        'from bins b where b.sku = any (p_skus) order by array_position(p_skus, b.sku), b.id\n',
      ],
    ],
  },
};
const reclaimByExpire: WrongForm = {
  name: 'the reclaim calls expire for each hold',
  changes: {
    'claim.sql': [
      [
        'perform lock_holds(v_overdue, p_budget_ends, p_deadline);',
        'foreach v_hold in array v_overdue loop perform expire(v_hold); end loop;',
      ],
    ],
  },
};
const waitsForAll: WrongForm = {
  name: 'a claim that finds no bucket free waits for all of them in order',
  changes: {
    'claim.sql': [["when 'QUICK' then 'WAIT' else 'ALL' end", "when 'QUICK' then 'ALL' end"]],
  },
};
const keepsWhatItWaitedFor: WrongForm = {
  name: 'the bucket that it waited for stays locked',
  changes: {
    'claim.sql': [
      [
        "if v_bins is null then\n      return jsonb_build_object('outcome', 'NO_BIN');",
        "if v_bins is null and p_pass = 'QUICK' then\n      return jsonb_build_object('outcome', 'NO_BIN');",
      ],
    ],
  },
};
const lateReclaims: WrongForm = {
  name: 'a late payment takes overdue holds back',
  changes: {
    'confirm.sql': [
      [
        'begin\n  select array_agg(l.sku order by l.sku), array_agg(l.quantity order by l.sku),',
        `  v_overdue uuid[];
         v_hold uuid;
         begin
           v_overdue := tahan.overdue_holds((select array_agg(l.sku) from tahan.hold_lines l
             where l.hold_id = p_hold.id), null, null, tahan.tahan_clock(), 8);
           perform tahan.lock_holds(v_overdue, p_budget_ends, null);
           foreach v_hold in array v_overdue loop
             perform tahan.lock_bins(tahan.bins_of_hold(v_hold), p_budget_ends, null);
             perform tahan.give_back(v_hold, 'EXPIRED', 'over', 'payment', tahan.tahan_clock());
           end loop;
           select array_agg(l.sku order by l.sku), array_agg(l.quantity order by l.sku),`,
      ],
    ],
  },
};

describeEachPostgres('who waits for whom', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });

  /** A connection that looks for deadlocks after so many ms of waiting: the one that is last to wait finds it. */
  async function session(shop: Shop, looksAfterMs: number) {
    const client = await shop.session();
    await client.query(`set deadlock_timeout = ${looksAfterMs}`);
    return client;
  }

  /** Two products in lock order. */
  async function twoProducts(shop: Shop, stock: number[]): Promise<[string, string]> {
    const both = [await shop.product(stock), await shop.product(stock)].sort();
    return both as [string, string];
  }

  for (const ending of ['expire($1)', `cancel($1, 'changed my mind', 'buyer')`]) {
    const name = ending.split('(')[0]!;
    decided(
      `A2: a claim that needs more overdue holds than it locked at first lets its bins go before it waits for one that somebody else is about to ${name}`,
      async (shop) => {
        const sku = await shop.product([9]);
        // The first try locks the eight that end first.
        const ninth = await shop.hold({ [sku]: 1 }, { holdSeconds: 9 });
        for (let i = 1; i <= 8; i += 1) await shop.hold({ [sku]: 1 }, { holdSeconds: i });
        await shop.shiftClock(60_000);
        const ender = await session(shop, 10);
        await ender.query('begin');
        await ender.query('select from holds where id = $1 for no key update', [ninth]);
        const request = await shop.request({ [sku]: 9 });
        const claiming = said(call(await session(shop, 60_000), ...claimCall(request)));
        await whenWaiting(shop, 'tahan.claim');
        const ended = await said(call(ender, `select tahan.${ending} as answer`, [ninth]));
        await ender.query('commit');
        return { [name]: ended, claim: await claiming, bins: await bins(shop, sku) };
      },
      {
        right: {
          [name]: name === 'expire' ? 'EXPIRED' : 'CANCELLED',
          claim: 'HELD',
          bins: [[0, 9, 0]],
        },
        wrong: [
          [
            mutant('a second reclaim with the bins still locked'),
            { [name]: '40P01', claim: 'HELD', bins: [[0, 9, 0]] },
          ],
        ],
      },
    );
  }

  decided(
    'A2: the bins of all holds that a claim takes back are locked in one order before anything is given back, also those of other products',
    async (shop) => {
      const [a, b] = await twoProducts(shop, [1]);
      // In the order of their ids the second product comes first.
      const [first, second] = [randomUUID(), randomUUID()].sort() as [string, string];
      const both = [
        await shop.hold({ [b]: 1 }, { holdId: first }),
        await shop.hold({ [a]: 1 }, { holdId: second }),
      ];
      await shop.shiftClock(601_000);
      const rival = await session(shop, 10);
      const lock = 'select from bins where sku = $1 for no key update';
      await rival.query('begin');
      await rival.query(lock, [a]);
      const request = await shop.request({ [a]: 1, [b]: 1 });
      const claiming = said(call(await session(shop, 60_000), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim');
      const locked = await said(rival.query(lock, [b]).then(() => ({ outcome: 'locked' })));
      await rival.query('rollback');
      const claim = await claiming;
      const ended = [];
      for (const hold of both) ended.push(await statusOf(shop, hold));
      return { rival: locked, claim, ended };
    },
    {
      right: { rival: 'locked', claim: 'HELD', ended: ['EXPIRED', 'EXPIRED'] },
      wrong: [[reclaimByExpire, { rival: '40P01', claim: 'HELD', ended: ['EXPIRED', 'EXPIRED'] }]],
    },
  );

  decided(
    'F9, B02: two carts with the same products in opposite order lock them in one order, and both get their units',
    async (shop) => {
      const [a, b] = await twoProducts(shop, [2]);
      const blocker = await otherOnBins(shop, a);
      const carts = [
        await shop.request({ [a]: 1, [b]: 1 }),
        await shop.request({ [b]: 1, [a]: 1 }),
      ];
      // The first waits for a. The second, in the order of its cart, would hold b and wait for a too.
      const answers: Promise<string>[] = [];
      for (const [at, cart] of carts.entries()) {
        const client = await session(shop, 100);
        answers.push(said(call(client, ...claimCall(cart))));
        await whenWaiting(shop, 'tahan.claim', at + 1);
      }
      await blocker.rollback();
      return (await Promise.all(answers)).sort();
    },
    { right: ['HELD', 'HELD'], wrong: [[inCartOrder, ['40P01', 'HELD']]] },
  );

  decided(
    'A3: a bin that a rival emptied in the last moment is not kept locked by the quick pass while the claim waits in order',
    async (shop) => {
      const sku = await shop.product([1, 1], { allocation: 'spread' });
      // A gate in the WHERE of the quick pass: it waits there with its snapshot taken and no lock yet.
      const [source] = await shop.query<{ text: string }>(
        `select pg_get_functiondef('tahan.quick_bin'::regproc) as text`,
      );
      const gated = source!.text.replace('where b.sku = p_sku', '$& and tahan.gate(p_sku)');
      await shop.query(`create function tahan.gate(p_sku text) returns boolean language plpgsql volatile as $$
        begin perform pg_advisory_xact_lock_shared(hashtext(p_sku)); return true; end $$; ${gated}`);

      const gate = await other(shop, 'select pg_advisory_xact_lock(hashtext($1))', [sku]);
      const request = await shop.request({ [sku]: 1 });
      const claiming = said(call(await session(shop, 60_000), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim');
      await shop.query(source!.text);
      const [first, second] = [
        await otherOnBins(shop, sku, 'b1'),
        await otherOnBins(shop, sku, 'b2'),
      ];
      await second.client.query(
        `select move_units(id, 'manual_adjustment', 1, null, null, 'count', 'rival', '{}', now(), -1)
         from bins where sku = $1 and code = 'b2'`,
        [sku],
      );
      await second.commit();
      await gate.rollback();
      const waits = `select wait_event from pg_stat_activity where datname = current_database()
        and query like '%tahan.claim%' and wait_event_type = 'Lock'`;
      await expect.poll(() => shop.query(waits)).toEqual([{ wait_event: 'transactionid' }]);
      await first.client.query('set deadlock_timeout = 10');
      const lock = `select from bins where sku = $1 and code = 'b2' for no key update`;
      const rival = await said(
        first.client.query(lock, [sku]).then(() => ({ outcome: 'locked both' })),
      );
      await first.rollback();
      return { rival, claim: await claiming };
    },
    {
      right: { rival: 'locked both', claim: 'HELD' },
      wrong: [[mutant('the quick pass keeps its locks'), { rival: '40P01', claim: 'HELD' }]],
    },
  );

  decided(
    'R04: a claim that finds every bucket locked waits for one of them, not for all',
    async (shop) => {
      const sku = await shop.product([5, 5, 5], { allocation: 'spread' });
      const request = await shop.request({ [sku]: 1 }, { claimDeadline: await shop.now(1500) });
      const rivals = [];
      for (const code of await spreadOrder(shop, sku, request.holdId))
        rivals.push(await otherOnBins(shop, sku, code));
      const claiming = said(claim(shop.db, request));
      await whenWaiting(shop, 'tahan.claim', 1, claiming);
      await rivals[0]!.commit();
      const answer = await claiming;
      for (const rival of rivals.slice(1)) await rival.commit();
      return answer;
    },
    { right: 'HELD', wrong: [[waitsForAll, 'CLAIM_TOO_LATE']] },
  );

  decided(
    'R04, A3: when that bucket has been emptied it is let go before the others are waited for',
    async (shop) => {
      const sku = await shop.product([1, 1], { allocation: 'spread' });
      let request = await shop.request({ [sku]: 1 });
      // It must wait first for the bucket that is the last in lock order.
      while ((await spreadOrder(shop, sku, request.holdId))[0] !== 'b2')
        request = await shop.request({ [sku]: 1 });
      const [first, second] = [
        await otherOnBins(shop, sku, 'b1'),
        await otherOnBins(shop, sku, 'b2'),
      ];
      const claiming = said(call(await session(shop, 60_000), ...claimCall(request)));
      await whenBehind(shop, second, 'tahan.claim', claiming);
      await second.client.query(
        `select move_units(id, 'manual_adjustment', 1, null, null, 'count', 'rival', '{}', now(), -1)
         from bins where sku = $1 and code = 'b2'`,
        [sku],
      );
      await second.commit();
      await whenBehind(shop, first, 'tahan.claim', claiming);
      await first.client.query('set deadlock_timeout = 10');
      const lock = `select from bins where sku = $1 and code = 'b2' for no key update`;
      const rival = await said(
        first.client.query(lock, [sku]).then(() => ({ outcome: 'locked both' })),
      );
      await first.rollback();
      return { rival, claim: await claiming };
    },
    {
      right: { rival: 'locked both', claim: 'HELD' },
      wrong: [[keepsWhatItWaitedFor, { rival: '40P01', claim: 'HELD' }]],
    },
  );

  decided<string | string[]>(
    'A6: a late payment takes nobody back and waits for no other hold, while a claim that began before its hold expired waits for one',
    async (shop) => {
      const sku = await shop.product([2], { latePayment: 'accept_if_available' });
      const [first, late] = [
        await shop.hold({ [sku]: 1 }),
        await shop.hold({ [sku]: 1 }),
      ].sort() as [string, string];
      await shop.shiftClock(601_000);
      const blocker = await other(shop, 'select from holds where id = $1 for update', [first]);
      const request = await shop.request({ [sku]: 2 });
      const claiming = said(call(await session(shop, 100), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim');
      await expire(shop.db, late);
      await shop.hold({ [sku]: 1 });
      const { provider, paymentId } = await shop.pay(late);
      const confirm = 'select tahan.confirm($1, $2, $3) as answer';
      const confirming = said(call(await session(shop, 100), confirm, [late, provider, paymentId]));
      await whenWaiting(shop, 'tahan.confirm', 1, confirming);
      await blocker.rollback();
      const answers = await Promise.all([confirming, claiming]);
      // Which of the two Postgres ends is a matter of milliseconds.
      return answers.includes('40P01') ? 'deadlock' : answers;
    },
    { right: ['TOO_LATE', 'INSUFFICIENT_STOCK'], wrong: [[lateReclaims, 'deadlock']] },
  );
});
