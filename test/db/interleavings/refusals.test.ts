import { putBin } from '../../../db/bin.js';
import { restock } from '../../../db/restock.js';
import { describeEachPostgres } from '../../setup/database.js';
import { bins, statusOf } from '../books.js';
import { atOnce, call, claimCall, other, said, whenBehind, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const twoTries: WrongForm = {
  name: 'after two tries the claim says INSUFFICIENT_STOCK',
  changes: {
    'claim.sql': [
      [
        "    if v_answer ->> 'outcome' = 'CLAIM_TOO_LATE' then",
        `    if v_answer ->> 'outcome' = 'MORE_OVERDUE' and v_batch >= 32 then
           v_answer := jsonb_build_object('outcome', 'INSUFFICIENT_STOCK', 'shortfalls', '[]'::jsonb);
         end if;
         if v_answer ->> 'outcome' = 'CLAIM_TOO_LATE' then`,
      ],
    ],
  },
};
const fromAnyBin: WrongForm = {
  name: 'it counts and takes by product, not from the bins that it locked',
  changes: {
    'claim.sql': [
      [
        'where b.id = any (v_bins) and b.available > b.safety_stock',
        'where b.sku = any (p_skus) and b.available > b.safety_stock',
      ],
    ],
  },
};
describeEachPostgres('what a claim is refused for', (version) => {
  const decided = bothForms(version, { connections: { claims: 8, changes: 4 } });

  decided(
    'A11, R15: a claim waits for the expiry that is giving its unit back, and gets it: while there is one, nobody is told sold out',
    async (shop) => {
      const seat = await shop.product([1]);
      const overdue = await shop.hold({ [seat]: 1 });
      await shop.shiftClock(601_000);
      const expiring = await other(shop, 'select from holds where id = $1 for no key update', [
        overdue,
      ]);
      const claiming = said(shop.claim({ [seat]: 1 }));
      await whenWaiting(shop, 'tahan.claim', 1, claiming);
      await call(expiring.client, 'select tahan.expire($1) as answer', [overdue]);
      await expiring.commit();
      return claiming;
    },
    { right: 'HELD', wrong: [[mutant('reclaim with SKIP LOCKED'), 'INSUFFICIENT_STOCK']] },
  );

  decided(
    'A11: a claim that loses the last free unit while it waits for the bin then takes the overdue one',
    async (shop) => {
      const sku = await shop.product([2]);
      const overdue = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(601_000);
      const rival = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
      const claiming = said(shop.claim({ [sku]: 1 }));
      await whenWaiting(shop, 'tahan.claim');
      await rival.commit();
      return { claim: await claiming, overdue: await statusOf(shop, overdue) };
    },
    {
      right: { claim: 'HELD', overdue: 'EXPIRED' },
      wrong: [
        [mutant('no second try for stock'), { claim: 'INSUFFICIENT_STOCK', overdue: 'HELD' }],
      ],
    },
  );

  decided(
    'A11: running out of a batch of overdue holds is not running out of stock: a claim of 33 takes 33 holds of 1 back, in three tries',
    async (shop) => {
      const sku = await shop.product([33]);
      await atOnce(33, () => shop.hold({ [sku]: 1 }));
      await shop.shiftClock(601_000);
      return said(shop.claim({ [sku]: 33 }));
    },
    {
      right: 'HELD',
      wrong: [[[twoTries, mutant('no second try for stock')], 'INSUFFICIENT_STOCK']],
    },
  );

  decided(
    'A11: a bin that is added while a claim waits is not taken from: it was never locked',
    async (shop) => {
      const sku = await shop.product([1]);
      const by = { actor: 'operator', reason: 'delivery' };
      const seller = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
      const request = await shop.request({ [sku]: 1 }, { claimDeadline: await shop.now(60_000) });
      const claiming = said(call(await shop.session(), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim');
      await putBin(shop.db, { sku, code: 'b2' }, by);
      const filled = { ...by, sku, bin: 'b2', requestId: 'in', reference: null };
      await restock(shop.db, { ...filled, quantity: 5 });
      // Somebody is counting the new bin down to nothing.
      const counting = await other(
        shop,
        `select tahan.adjust($1, 'b2', -5, 'count', 'operator', 'out', null) as answer`,
        [sku],
      );
      await seller.commit();
      await whenBehind(shop, counting, 'tahan.claim', claiming);
      await counting.commit();
      return { claim: await claiming, bins: await bins(shop, sku) };
    },
    {
      right: {
        claim: 'INSUFFICIENT_STOCK',
        bins: [
          [0, 1, 0],
          [0, 0, 0],
        ],
      },
      // Only the CHECK stops it, as an error.
      wrong: [
        [
          fromAnyBin,
          {
            claim: '23514',
            bins: [
              [0, 1, 0],
              [0, 0, 0],
            ],
          },
        ],
      ],
    },
  );

  decided(
    'R40, M1: the second of two claims for the last unit waits for the bin and is refused on the true count',
    async (shop) => {
      const sku = await shop.product([1]);
      const first = await other<{ outcome: string }>(
        shop,
        ...claimCall(await shop.request({ [sku]: 1 })),
      );
      const second = said(shop.claim({ [sku]: 1 }));
      await whenWaiting(shop, 'tahan.claim');
      await first.commit();
      return [first.answer.outcome, await second];
    },
    {
      right: ['HELD', 'INSUFFICIENT_STOCK'],
      wrong: [[mutant('bins not locked'), ['HELD', '23514']]],
    },
  );
});
