import { randomUUID } from 'node:crypto';
import { claim } from '../../../db/claim.js';
import { putCartLine } from '../../../db/putCartLine.js';
import { readCart } from '../../../db/readCart.js';
import { readHold } from '../../../db/readHold.js';
import { describeEachPostgres } from '../../setup/database.js';
import { claimCall, other, otherOnBins, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const lockAndRead = `    perform lock_cart(p_buyer_id, v_budget_ends, v_deadline);
    v_lines := cart_lines(p_buyer_id);
`;
const readBeforeTheLock: WrongForm = {
  name: "the cart is read before its buyer's lock",
  changes: {
    'claim.sql': [
      [
        lockAndRead,
        `    v_lines := cart_lines(p_buyer_id);
    perform lock_cart(p_buyer_id, v_budget_ends, v_deadline);
`,
      ],
    ],
  },
};
const readWhileLocking: WrongForm = {
  name: 'one statement locks the buyer and reads the cart',
  changes: {
    'claim.sql': [
      [
        lockAndRead,
        `    select jsonb_agg(jsonb_build_object('sku', c.sku, 'quantity', c.quantity) order by c.sku) into v_lines
    from (select pg_advisory_xact_lock(buyer_lock(p_buyer_id)) offset 0) l, carts c
    where c.buyer_id = p_buyer_id;
`,
      ],
    ],
  },
};
const putWithoutTheLock: WrongForm = {
  name: "a line is put without the buyer's lock",
  changes: {
    'carts.sql': [
      [
        '  perform lock_cart(p_buyer_id, v_budget_ends, null);\n  select p.active into',
        '  select p.active into',
      ],
    ],
  },
};
const emptiedBeforeTheAnswer: WrongForm = {
  name: 'the cart is emptied before it is known whether there is enough',
  changes: { 'claim.sql': [[lockAndRead, `${lockAndRead}    perform empty_cart(p_buyer_id);\n`]] },
};
const keptAfterwards: WrongForm = {
  name: 'the cart is not emptied',
  changes: { 'claim.sql': [['          perform empty_cart(p_buyer_id);\n', '']] },
};

describeEachPostgres('an order of a cart, interleaved', (version) => {
  const decided = bothForms(version, { connections: { claims: 6 } });

  const fill = async (shop: Shop, buyerId: string, lines: Record<string, number>) => {
    for (const [sku, quantity] of Object.entries(lines))
      await putCartLine(shop.db, { buyerId, sku, quantity });
  };
  const order = (shop: Shop, buyerId: string) =>
    shop.request({}, { buyerId, lines: null, order: true });
  /** How many units of each of these products are in the order, and in the cart. */
  const units = async (shop: Shop, holdId: string, buyerId: string, skus: string[]) => {
    const [held, { lines }] = [
      await readHold(shop.db, holdId),
      await readCart(shop.db, buyerId),
    ] as const;
    const each = (of: { sku: string; quantity: number }[]) =>
      skus.map((sku) => of.find((line) => line.sku === sku)?.quantity ?? 0);
    return { ordered: each(held?.lines ?? []), left: each(lines) };
  };

  decided(
    'R33: a line that is being put while the order waits for the buyer is in the order, and is not lost',
    async (shop) => {
      const [a, b] = [await shop.product([9]), await shop.product([9])];
      const buyerId = randomUUID();
      await fill(shop, buyerId, { [a]: 1 });
      const putting = await other(shop, 'select tahan.put_cart_line($1, $2, 3) as answer', [
        buyerId,
        b,
      ]);
      const request = await order(shop, buyerId);
      const ordering = said(claim(shop.db, request));
      await whenWaiting(shop, 'tahan.claim', 1, ordering);
      await putting.commit();
      return [await ordering, await units(shop, request.holdId, buyerId, [a, b])];
    },
    {
      right: ['HELD', { ordered: [1, 3], left: [0, 0] }],
      wrong: [
        [
          [readBeforeTheLock, readWhileLocking],
          ['HELD', { ordered: [1, 0], left: [0, 0] }],
        ],
      ],
    },
  );

  decided(
    'R33: a line that is taken out while the order waits for the buyer is not bought',
    async (shop) => {
      const [a, b] = [await shop.product([9]), await shop.product([9])];
      const buyerId = randomUUID();
      await fill(shop, buyerId, { [a]: 1, [b]: 1 });
      const removing = await other(shop, 'select tahan.remove_cart_line($1, $2) as answer', [
        buyerId,
        b,
      ]);
      const request = await order(shop, buyerId);
      const ordering = said(claim(shop.db, request));
      await whenWaiting(shop, 'tahan.claim', 1, ordering);
      await removing.commit();
      return [await ordering, await units(shop, request.holdId, buyerId, [a, b])];
    },
    {
      right: ['HELD', { ordered: [1, 0], left: [0, 0] }],
      wrong: [[readBeforeTheLock, ['HELD', { ordered: [1, 1], left: [0, 0] }]]],
    },
  );

  decided(
    'R33: two orders of one cart: the second waits for the first, and finds the cart empty',
    async (shop) => {
      const sku = await shop.product([9]);
      const buyerId = randomUUID();
      await fill(shop, buyerId, { [sku]: 1 });
      const first = await other<{ outcome: string }>(
        shop,
        ...claimCall(await order(shop, buyerId)),
      );
      const second = said(claim(shop.db, await order(shop, buyerId)));
      await whenWaiting(shop, 'tahan.claim', 1, second);
      await first.commit();
      return [first.answer.outcome, await second];
    },
    {
      right: ['HELD', 'CART_EMPTY'],
      wrong: [
        [
          [readBeforeTheLock, keptAfterwards],
          ['HELD', 'HELD'],
        ],
      ],
    },
  );

  decided(
    'R33: a line that is put while the order waits for stock is put after it, and stays in the cart',
    async (shop) => {
      const [a, b] = [await shop.product([9]), await shop.product([9])];
      const buyerId = randomUUID();
      await fill(shop, buyerId, { [a]: 1 });
      const request = await order(shop, buyerId);
      const blocker = await otherOnBins(shop, a);
      const ordering = said(claim(shop.db, request));
      await whenWaiting(shop, 'tahan.claim');
      const putting = said(putCartLine(shop.db, { buyerId, sku: b, quantity: 3 }));
      await whenWaiting(shop, 'tahan.put_cart_line', 1, putting);
      await blocker.rollback();
      const answers = [await ordering, await putting];
      return [...answers, await units(shop, request.holdId, buyerId, [a, b])];
    },
    {
      right: ['HELD', 'PUT', { ordered: [1, 0], left: [0, 3] }],
      wrong: [[putWithoutTheLock, ['HELD', 'PUT', { ordered: [1, 0], left: [0, 0] }]]],
    },
  );

  decided(
    'R33: an order whose last unit goes to another buyer while it waits is refused, and its cart is as it was',
    async (shop) => {
      const sku = await shop.product([1]);
      const buyerId = randomUUID();
      await fill(shop, buyerId, { [sku]: 1 });
      const rival = await other(shop, ...claimCall(await shop.request({ [sku]: 1 })));
      const request = await order(shop, buyerId);
      const ordering = said(claim(shop.db, request));
      await whenWaiting(shop, 'tahan.claim', 1, ordering);
      await rival.commit();
      return [await ordering, await units(shop, request.holdId, buyerId, [sku])];
    },
    {
      right: ['INSUFFICIENT_STOCK', { ordered: [0], left: [1] }],
      wrong: [[emptiedBeforeTheAnswer, ['INSUFFICIENT_STOCK', { ordered: [0], left: [0] }]]],
    },
  );
});
