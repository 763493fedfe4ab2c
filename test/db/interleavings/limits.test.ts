import { randomUUID } from 'node:crypto';
import { claim } from '../../../db/claim.js';
import { confirm } from '../../../db/confirm.js';
import { expire } from '../../../db/expire.js';
import { describeEachPostgres } from '../../setup/database.js';
import { counts, statusOf } from '../books.js';
import { beingPaid, claimCall, other, otherOnBins, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const overdueDoNotCount: WrongForm = {
  name: 'the count leaves out overdue unpaid holds',
  changes: {
    'basics.sql': [
      [
        "where h.buyer_id = p_buyer_id and h.status in ('HELD', 'CONFIRMED') and l.sku = p_sku",
        `where h.buyer_id = p_buyer_id and l.sku = p_sku and (h.status = 'CONFIRMED' or h.status = 'HELD'
           and (h.expires_at > tahan.tahan_clock() or tahan.pending_payment(h.id) is not null))`,
      ],
    ],
  },
};
const countWhileLocking: WrongForm = {
  name: 'one statement locks the buyer and counts',
  changes: {
    'claim.sql': [
      [
        'perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));',
        `perform pg_advisory_xact_lock(buyer_lock(p_buyer_id)), set_config('tahan.counted', (
           select coalesce(sum(l.quantity), 0) from holds h join hold_lines l on l.hold_id = h.id
           where h.buyer_id = p_buyer_id and h.status in ('HELD', 'CONFIRMED') and l.sku = v_skus[1])::text, true);`,
      ],
    ],
    'basics.sql': [
      [
        `  select coalesce(sum(l.quantity - l.returned), 0)
  from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
  where h.buyer_id = p_buyer_id and h.status in ('HELD', 'CONFIRMED') and l.sku = p_sku`,
        `select current_setting('tahan.counted')::bigint`,
      ],
    ],
  },
};
const lateWithoutBuyersLock: WrongForm = {
  name: 'a late payment does not lock the buyer',
  changes: { 'confirm.sql': [['perform pg_advisory_xact_lock(buyer_lock(v_hold.buyer_id));', '']] },
};

describeEachPostgres('the limit per buyer, interleaved', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });

  decided(
    'A11, A12: a buyer whose own hold ends while the claim waits for the bin is not told of the limit',
    async (shop) => {
      const sku = await shop.product([9], { perBuyerLimit: 1 });
      const buyerId = randomUUID();
      const own = await shop.hold({ [sku]: 1 }, { buyerId });
      const claimDeadline = await shop.now(3_600_000);
      const blocker = await otherOnBins(shop, sku);
      const claiming = said(shop.claim({ [sku]: 1 }, { buyerId, claimDeadline }));
      await whenWaiting(shop, 'tahan.claim', 1, claiming);
      await shop.shiftClock(601_000);
      await blocker.rollback();
      return { claim: await claiming, own: await statusOf(shop, own) };
    },
    {
      right: { claim: 'HELD', own: 'EXPIRED' },
      wrong: [[mutant('no second try for the limit'), { claim: 'BUYER_LIMIT', own: 'HELD' }]],
    },
  );

  const units = async (shop: Shop, buyerId: string, sku: string) => {
    const [row] = await shop.query<{ units: number }>(
      `select coalesce(sum(l.quantity), 0)::int as units from tahan.holds h
       join tahan.hold_lines l on l.hold_id = h.id
       where h.buyer_id = $1 and l.sku = $2 and h.status in ('HELD', 'CONFIRMED')`,
      [buyerId, sku],
    );
    return row!.units;
  };

  decided(
    "A12: a buyer's overdue hold counts while its payment is being recorded",
    async (shop) => {
      const sku = await shop.product([9], { perBuyerLimit: 1 });
      const buyerId = randomUUID();
      const hold = await shop.hold({ [sku]: 1 }, { buyerId });
      const payment = await beingPaid(shop, hold, `pays-${hold}`);
      await shop.shiftClock(601_000);
      const again = said(shop.claim({ [sku]: 1 }, { buyerId }));
      await whenWaiting(shop, 'tahan.claim', 1, again);
      await payment.commit();
      const claimed = await again;
      const paid = await said(
        confirm(shop.db, hold, { provider: 'test', paymentId: `pays-${hold}` }),
      );
      return { claimed, paid, units: await units(shop, buyerId, sku) };
    },
    {
      right: { claimed: 'BUYER_LIMIT', paid: 'CONFIRMED', units: 1 },
      wrong: [[overdueDoNotCount, { claimed: 'HELD', paid: 'CONFIRMED', units: 2 }]],
    },
  );

  decided(
    'A12: the second claim of a buyer waits for the first one and then counts it',
    async (shop) => {
      const sku = await shop.product([9, 9], { perBuyerLimit: 1, allocation: 'spread' });
      const buyerId = randomUUID();
      const request = await shop.request({ [sku]: 1 }, { buyerId });
      const first = await other(shop, ...claimCall(request));
      const second = said(shop.claim({ [sku]: 1 }, { buyerId }));
      await whenWaiting(shop, 'tahan.claim', 1, second);
      await first.commit();
      return { second: await second, units: await units(shop, buyerId, sku) };
    },
    {
      right: { second: 'BUYER_LIMIT', units: 1 },
      wrong: [[[countWhileLocking, mutant('no lock of the buyer')], { second: 'HELD', units: 2 }]],
    },
  );

  const accepting = { latePayment: 'accept_if_available' as const, perBuyerLimit: 4 };
  decided(
    'A6, A12: a late payment counts against the limit: a buyer who has bought 3 of 4 meanwhile does not get 2 more',
    async (shop) => {
      const sku = await shop.product([9], accepting);
      const buyerId = randomUUID();
      const late = await shop.hold({ [sku]: 2 }, { buyerId });
      await shop.shiftClock(601_000);
      await expire(shop.db, late);
      const bought = await shop.hold({ [sku]: 3 }, { buyerId });
      await confirm(shop.db, bought, await shop.pay(bought));
      const paid = await said(confirm(shop.db, late, await shop.pay(late)));
      return { paid, units: await units(shop, buyerId, sku) };
    },
    {
      right: { paid: 'TOO_LATE', units: 3 },
      wrong: [[mutant('late acceptance without the limit'), { paid: 'CONFIRMED', units: 5 }]],
    },
  );

  decided(
    'A6, A12: also against a claim of the same moment',
    async (shop) => {
      const sku = await shop.product([9], accepting);
      const buyerId = randomUUID();
      const late = await shop.hold({ [sku]: 2 }, { buyerId });
      await shop.shiftClock(601_000);
      await expire(shop.db, late);
      const payment = await shop.pay(late);
      const blocker = await otherOnBins(shop, sku);
      const claiming = said(claim(shop.db, await shop.request({ [sku]: 3 }, { buyerId })));
      await whenWaiting(shop, 'tahan.claim');
      const confirming = said(confirm(shop.db, late, payment));
      await whenWaiting(shop, 'tahan.confirm');
      await blocker.rollback();
      const answers = [await claiming, await confirming];
      return { answers, units: await units(shop, buyerId, sku), counts: await counts(shop, sku) };
    },
    {
      right: {
        answers: ['HELD', 'TOO_LATE'],
        units: 3,
        counts: { available: 6, held: 3, sold: 0, total: 9 },
      },
      wrong: [
        [
          lateWithoutBuyersLock,
          {
            answers: ['HELD', 'CONFIRMED'],
            units: 5,
            counts: { available: 4, held: 3, sold: 2, total: 9 },
          },
        ],
      ],
    },
  );
});
