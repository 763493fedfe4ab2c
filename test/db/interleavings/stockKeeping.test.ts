import { randomUUID } from 'node:crypto';
import { describeEachPostgres } from '../../setup/database.js';
import { bins } from '../books.js';
import { call, claimCall, other, otherOnBins, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const fromThenTo: WrongForm = {
  name: 'a move locks the bin that it leaves, then the other',
  changes: {
    'stock_move.sql': [
      [
        'v_locked := array[least(v_from.id, v_to.id), greatest(v_from.id, v_to.id)];',
        'v_locked := array[v_from.id, v_to.id];',
      ],
    ],
  },
};
const inFileOrder: WrongForm = {
  name: 'an import locks the bins in the order of its rows',
  changes: {
    'stock_import.sql': [
      [
        `select coalesce(array_agg(b.id order by b.sku, b.id), '{}') into v_locked`,
        `select coalesce(array_agg(b.id order by array_position(v_bin_ids, b.id)), '{}') into v_locked`,
      ],
    ],
  },
};
const importsUnlocked: WrongForm = {
  name: 'an import does not lock its bins',
  changes: {
    'stock_import.sql': [['perform tahan.lock_bins(v_locked, p_budget_ends, null);', '']],
  },
};
const looksBeforeTheLock: WrongForm = {
  name: 'a count compares with what it read before it waited',
  changes: {
    'stock.sql': [
      [
        'select b.* into v_bin from tahan.bins b where b.id = v_bin.id;\n  select r.*',
        'select r.*',
      ],
    ],
  },
};
const keepsNothing: WrongForm = {
  name: 'a move does not look for its request',
  changes: {
    'stock_move.sql': [
      ['where r.scope = v_scope and r.request_id = p_request_id;', 'where false;'],
      ['v_request, v_answer, v_now);', 'v_request, v_answer, v_now) on conflict do nothing;'],
    ],
  },
};
const keyUnlocked: WrongForm = {
  name: 'an import does not lock its key',
  changes: {
    'stock_import.sql': [
      [`perform pg_advisory_xact_lock(hashtextextended('import ' || p_request_id, 4712));`, ''],
    ],
  },
};

describeEachPostgres('changes of stock that meet', (version) => {
  const decided = bothForms(version, { connections: { changes: 4 } });

  const moveCall = (sku: string, from: string, to: string, requestId: string = randomUUID()) =>
    [
      `select tahan.move_stock($1, $2, $3, 1, 'nearer', 'mia', $4, null) as answer`,
      [sku, from, to, requestId],
    ] as [string, unknown[]];
  const importCall = (sku: string, codes: string[], requestId: string = randomUUID()) => {
    const rows = codes.map((bin) => ({ sku, bin, action: 'restock', quantity: 1, reason: 'x' }));
    return [
      `select tahan.import_stock($1, false, false, 'mia', $2) as answer`,
      [JSON.stringify(rows), requestId],
    ] as [string, unknown[]];
  };

  /** Runs these calls, each on a connection of its own and each waiting before the next begins, and then lets them go. */
  async function inLine(
    shop: Shop,
    blocker: { rollback(): Promise<void> },
    calls: [text: string, values: unknown[]][],
  ): Promise<string | string[]> {
    const answers: Promise<string>[] = [];
    for (const [text, values] of calls) {
      const client = await shop.session();
      await client.query('set deadlock_timeout = 100');
      answers.push(said(call(client, text, values)));
      await whenWaiting(shop, 'select tahan.', answers.length);
    }
    await blocker.rollback();
    const all = await Promise.all(answers);
    // Which of the two Postgres ends is a matter of milliseconds.
    return all.includes('40P01') ? 'deadlock' : all;
  }

  decided<string | string[]>(
    'R37, B02: two moves in opposite direction between two bins wait for one another, in one order',
    async (shop) => {
      const sku = await shop.product([2, 2]);
      const blocker = await otherOnBins(shop, sku, 'b1');
      return inLine(shop, blocker, [moveCall(sku, 'b1', 'b2'), moveCall(sku, 'b2', 'b1')]);
    },
    { right: ['DONE', 'DONE'], wrong: [[fromThenTo, 'deadlock']] },
  );

  decided<string | string[]>(
    'R37, A15: an import whose rows stand in another order than its bins waits for a claim over both, and the claim for it',
    async (shop) => {
      const sku = await shop.product([2, 2]);
      const blocker = await otherOnBins(shop, sku, 'b1');
      const request = await shop.request({ [sku]: 3 });
      return inLine(shop, blocker, [claimCall(request), importCall(sku, ['b2', 'b1'])]);
    },
    { right: ['HELD', 'DONE'], wrong: [[inFileOrder, 'deadlock']] },
  );

  decided(
    'R37: an import sees what a claim took while it waited',
    async (shop) => {
      const sku = await shop.product([3]);
      const claiming = await other<{ outcome: string }>(
        shop,
        ...claimCall(await shop.request({ [sku]: 2 })),
      );
      const client = await shop.session();
      const importing = said(call(client, ...importCall(sku, ['b1'])));
      await whenWaiting(shop, 'tahan.import_stock');
      await claiming.commit();
      return {
        claim: claiming.answer.outcome,
        import: await importing,
        bins: await bins(shop, sku),
      };
    },
    {
      right: { claim: 'HELD', import: 'DONE', bins: [[2, 2, 0]] },
      // The update finds the row changed, and writes a version that the ledger has already.
      wrong: [[importsUnlocked, { claim: 'HELD', import: '23505', bins: [[1, 2, 0]] }]],
    },
  );

  decided(
    'R37, B20: a count that waits for a delivery compares with what the delivery left',
    async (shop) => {
      const sku = await shop.product([3]);
      const delivery = await other(
        shop,
        `select tahan.restock($1, 'b1', 2, 'truck', 'mia', 'x', null) as answer`,
        [sku],
      );
      const client = await shop.session();
      const counting = said(
        call(
          client,
          `select tahan.count_stock($1, 'b1', 4, 3, 'count', 'mia', 'y', null) as answer`,
          [sku],
        ),
      );
      await whenWaiting(shop, 'tahan.count_stock');
      await delivery.commit();
      return { count: await counting, bins: await bins(shop, sku) };
    },
    {
      right: { count: 'STOCK_CHANGED', bins: [[5, 0, 0]] },
      wrong: [[looksBeforeTheLock, { count: 'DONE', bins: [[6, 0, 0]] }]],
    },
  );

  decided(
    'A7: a move that is repeated while the first one runs is made once',
    async (shop) => {
      const sku = await shop.product([4, 0]);
      const requestId = randomUUID();
      const first = await other(shop, ...moveCall(sku, 'b1', 'b2', requestId));
      const client = await shop.session();
      const repeat = said(call(client, ...moveCall(sku, 'b1', 'b2', requestId)));
      await whenWaiting(shop, 'tahan.move_stock');
      await first.commit();
      return {
        repeat: await repeat,
        bins: (await bins(shop, sku)).map(([available]) => available),
      };
    },
    {
      right: { repeat: 'DONE', bins: [3, 1] },
      wrong: [[keepsNothing, { repeat: 'DONE', bins: [2, 2] }]],
    },
  );

  decided(
    'A7: an import of unknown bins that is repeated while the first one runs is answered like it',
    async (shop) => {
      const requestId = randomUUID();
      const first = await other(shop, ...importCall('none', ['b1'], requestId));
      const client = await shop.session();
      const repeat = said(call(client, ...importCall('none', ['b1'], requestId)));
      await whenWaiting(shop, 'tahan.import_stock');
      await first.commit();
      return repeat;
    },
    { right: 'DONE', wrong: [[keyUnlocked, '23505']] },
  );
});
