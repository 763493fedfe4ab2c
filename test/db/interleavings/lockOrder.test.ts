import { randomUUID } from 'node:crypto';
import { describeEachPostgres } from '../../setup/database.js';
import { call, claimCall, other, otherOnBins, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const releaseBackwards: WrongForm = {
  name: 'a release locks the bins backwards',
  changes: {
    'basics.sql': [
      [
        "coalesce(array_agg(b.id order by b.sku, b.id), '{}')\n  from tahan.allocations",
        "coalesce(array_agg(b.id order by b.sku desc, b.id desc), '{}')\n  from tahan.allocations",
      ],
    ],
  },
};
const binsBeforeHold: WrongForm = {
  name: 'cancel locks the bins before the hold',
  changes: {
    'cancel.sql': [
      [
        'perform lock_holds(array[p_hold_id], v_budget_ends, null);',
        'perform lock_bins(bins_of_hold(p_hold_id), v_budget_ends, null);\n  perform lock_holds(array[p_hold_id], v_budget_ends, null);',
      ],
    ],
  },
};
const holdBeforeBuyer: WrongForm = {
  name: 'a late payment locks the hold before the buyer',
  changes: {
    'confirm.sql': [
      [
        "  if v_hold.late_payment = 'accept_if_available' then",
        "  perform lock_holds(array[p_hold_id], v_budget_ends, null);\n  if v_hold.late_payment = 'accept_if_available' then",
      ],
    ],
  },
};
const batchBackwards: WrongForm = {
  name: 'a batch locks the bins backwards',
  changes: {
    'end_together.sql': [['order by b.sku, b.id)', 'order by b.sku desc, b.id desc)']],
  },
};
const batchWaits: WrongForm = {
  name: 'a batch waits for the holds of others',
  changes: { 'end_together.sql': [['no key update skip locked', 'no key update']] },
};

describeEachPostgres('the order of locks: key, buyer, holds, bins', (version) => {
  const decided = bothForms(version);

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
    'R23: a reservation and a release of the same two products wait for one another, in one order of the bins',
    async (shop) => {
      const [a, b] = [await shop.product([2]), await shop.product([2])].sort() as [string, string];
      const hold = await shop.hold({ [a]: 1, [b]: 1 });
      const request = await shop.request({ [b]: 1, [a]: 1 });
      return inLine(shop, await otherOnBins(shop, a), [
        claimCall(request),
        [`select tahan.cancel($1, 'changed my mind', 'buyer') as answer`, [hold]],
      ]);
    },
    { right: ['HELD', 'CANCELLED'], wrong: [[releaseBackwards, 'deadlock']] },
  );

  decided<string | string[]>(
    'R23, F13: a reservation and a batch of expiries over the same two products wait for one another, in one order of the bins',
    async (shop) => {
      const [a, b] = [await shop.product([2]), await shop.product([2])].sort() as [string, string];
      const hold = await shop.hold({ [a]: 1, [b]: 1 });
      await shop.shiftClock(11 * 60_000);
      const request = await shop.request({ [b]: 1, [a]: 1 });
      return inLine(shop, await otherOnBins(shop, a), [
        claimCall(request),
        [`select tahan.expire_batch(array[$1]::uuid[]) -> 0 as answer`, [hold]],
      ]);
    },
    { right: ['HELD', 'EXPIRED'], wrong: [[batchBackwards, 'deadlock']] },
  );

  decided<string[]>(
    'F35: a hold that somebody has locked keeps no other hold of its batch waiting',
    async (shop) => {
      const sku = await shop.product([2]);
      const [locked, free] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
      await shop.shiftClock(11 * 60_000);
      const rival = await other(shop, 'select from tahan.holds where id = $1 for no key update', [
        locked,
      ]);
      const batch = shop.query<{ answer: { outcome: string }[] }>(
        'select tahan.expire_batch($1) as answer',
        [[locked, free]],
      );
      await whenWaiting(shop, 'tahan.expire_batch', 1, batch);
      await rival.rollback();
      return (await batch)[0]!.answer.map(({ outcome }) => outcome);
    },
    { right: ['ALONE', 'EXPIRED'], wrong: [[batchWaits, ['EXPIRED', 'EXPIRED']]] },
  );

  decided<string | string[]>(
    'B12b: a cancel and an expiry of one hold lock the hold before its bins, and give back once',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(601_000);
      return inLine(shop, await otherOnBins(shop, sku), [
        [`select tahan.cancel($1, 'changed my mind', 'buyer') as answer`, [hold]],
        [`select tahan.expire($1) as answer`, [hold]],
      ]);
    },
    { right: ['CANCELLED', 'ALREADY'], wrong: [[binsBeforeHold, 'deadlock']] },
  );

  decided<string | string[]>(
    'A2, A6: a claim and a late payment of one buyer lock the buyer before any hold',
    async (shop) => {
      const settings = { latePayment: 'accept_if_available' as const, perBuyerLimit: 2 };
      const sku = await shop.product([9], settings);
      const buyer = { buyerId: randomUUID() };
      const [first, second] = [
        await shop.hold({ [sku]: 1 }, buyer),
        await shop.hold({ [sku]: 1 }, buyer),
      ].sort();
      await shop.shiftClock(601_000);
      const { provider, paymentId } = await shop.pay(second!);
      const blocker = await other(shop, 'select from holds where id = $1 for update', [first]);
      // The claim has the buyer and wants both overdue holds.
      return inLine(shop, blocker, [
        claimCall(await shop.request({ [sku]: 2 }, buyer)),
        ['select tahan.confirm($1, $2, $3) as answer', [second, provider, paymentId]],
      ]);
    },
    { right: ['HELD', 'TOO_LATE'], wrong: [[holdBeforeBuyer, 'deadlock']] },
  );
});
