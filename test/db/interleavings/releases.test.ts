import { randomUUID } from 'node:crypto';
import { release } from '../../../db/release.js';
import { returnSale } from '../../../db/returnSale.js';
import { confirm } from '../../../db/confirm.js';
import { readHold } from '../../../db/readHold.js';
import { describeEachPostgres } from '../../setup/database.js';
import { counts } from '../books.js';
import { other, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const lock = '  perform lock_holds(array[p_hold_id], v_budget_ends, null);\n';
const lockBins = '  perform lock_bins(v_bins, v_budget_ends, null);\n';

/** Looks at the lines, and writes what is left of what it saw, so that no table has a reason to refuse it. */
const releaseLooksFirst: WrongForm = {
  name: 'release looks at the lines before it has the lock',
  changes: {
    'release.sql': [
      [lock, ''],
      [lockBins, lock + lockBins],
      [
        'set quantity = a.quantity - v_parts[i]',
        'set quantity = greatest(a.quantity - v_parts[i], 1)',
      ],
      [
        'set quantity = l.quantity - w.quantity,',
        'set quantity = greatest(l.quantity - w.quantity, 1),',
      ],
    ],
  },
};
const releaseLooksFirstPlainly: WrongForm = {
  name: 'the same, and the tables refuse what comes of it',
  changes: {
    'release.sql': [
      [lock, ''],
      [lockBins, lock + lockBins],
    ],
  },
};
const returnLooksFirst: WrongForm = {
  name: 'return_sale looks at the lines before it has the lock',
  changes: {
    'return_sale.sql': [
      [lock, ''],
      [lockBins, lock + lockBins],
      [
        'set returned = a.returned + v_parts[i]',
        'set returned = least(a.returned + v_parts[i], a.quantity)',
      ],
      [
        'set returned = l.returned + w.quantity',
        'set returned = least(l.returned + w.quantity, l.quantity)',
      ],
    ],
  },
};
const forgetsThePayment: WrongForm = {
  name: 'release does not look for a payment in time',
  changes: { 'release.sql': [['v_pending := pending_payment(p_hold_id);', '']] },
};
const fromTheFirstBin: WrongForm = {
  name: 'the units go to the first bin',
  changes: {
    'release.sql': [
      [
        "      perform move_units(v_bins[i], 'release_reservation'",
        "      perform move_units(v_bins[1], 'release_reservation'",
      ],
    ],
  },
};

describeEachPostgres('releases and returns, interleaved', (version) => {
  const decided = bothForms(version, { connections: { changes: 4 } });
  const by = { reason: 'r', actor: 'a' };

  decided(
    'B13: a release that waited for another one counts what that one left: 6 of 10 twice is refused, and the units of another buyer stay held',
    async (shop) => {
      const sku = await shop.product([20]);
      const hold = await shop.hold({ [sku]: 10 });
      await shop.hold({ [sku]: 10 });
      const lines = [{ sku, quantity: 6 }];
      const first = await other(shop, `select tahan.release($1, $2, 'r', 'a', 'one')`, [
        hold,
        JSON.stringify(lines),
      ]);
      const second = said(release(shop.db, hold, { ...by, lines, requestId: 'two' }));
      await whenWaiting(shop, 'tahan.release', 1, second);
      await first.commit();
      return { second: await second, held: (await counts(shop, sku)).held };
    },
    {
      right: { second: 'INVALID_QUANTITY', held: 14 },
      wrong: [
        [releaseLooksFirst, { second: 'RELEASED', held: 8 }],
        [releaseLooksFirstPlainly, { second: '23514', held: 14 }],
      ],
    },
  );

  decided(
    'R09: a return that waited for another one counts what that one took: 6 of 10 twice is refused, and nobody else is unsold',
    async (shop) => {
      const sku = await shop.product([20]);
      const sold = async () => {
        const hold = await shop.hold({ [sku]: 10 });
        await confirm(shop.db, hold, await shop.pay(hold));
        return hold;
      };
      const hold = await sold();
      await sold();
      const lines = [{ sku, quantity: 6 }];
      const values = [hold, JSON.stringify(lines)];
      const first = await other(
        shop,
        `select tahan.return_sale($1, $2, 'r', 'a', 'one', true, 0)`,
        values,
      );
      const request = { holdId: hold, lines, ...by, restock: true, refundMinor: 0 };
      const second = said(returnSale(shop.db, { ...request, requestId: 'two' }));
      await whenWaiting(shop, 'tahan.return_sale', 1, second);
      await first.commit();
      return { second: await second, sold: (await counts(shop, sku)).sold };
    },
    {
      right: { second: 'INVALID_QUANTITY', sold: 14 },
      wrong: [[returnLooksFirst, { second: 'RETURNED', sold: 8 }]],
    },
  );

  decided(
    'A1, B13: a payment that was recorded while the release waited comes first: the total must not change under it',
    async (shop) => {
      const sku = await shop.product([9], { priceMinor: 500, currency: 'EUR' });
      const hold = await shop.hold({ [sku]: 2 }, { order: true });
      const paying = await other(
        shop,
        `select tahan.record_payment('test', $2, null, 'succeeded', $1, null, 1000, 'EUR', '{}')`,
        [hold, randomUUID()],
      );
      const lines = [{ sku, quantity: 1 }];
      const releasing = said(release(shop.db, hold, { ...by, lines, requestId: 'one' }));
      await whenWaiting(shop, 'tahan.release', 1, releasing);
      await paying.commit();
      const answer = await releasing;
      const { order, payments } = (await readHold(shop.db, hold))!;
      const { paymentId } = payments[0]!;
      const confirmed = await said(confirm(shop.db, hold, { provider: 'test', paymentId }));
      return { answer, total: order!.totalMinor, confirmed };
    },
    {
      right: { answer: 'PAYMENT_PENDING', total: 1000, confirmed: 'CONFIRMED' },
      wrong: [[forgetsThePayment, { answer: 'RELEASED', total: 500, confirmed: 'MISMATCH' }]],
    },
  );

  decided(
    'B13: the units of two bins go back to those two',
    async (shop: Shop) => {
      const sku = await shop.product([1, 5, 9]);
      await shop.hold({ [sku]: 3 });
      const hold = await shop.hold({ [sku]: 4 });
      const lines = [{ sku, quantity: 2 }];
      await release(shop.db, hold, { ...by, lines, requestId: 'one' });
      const rows = await shop.query<{ held: number }>(
        'select held from tahan.bins where sku = $1 order by id',
        [sku],
      );
      return rows.map(({ held }) => held);
    },
    { right: [1, 4, 0], wrong: [[fromTheFirstBin, [1, 3, 1]]] },
  );
});
