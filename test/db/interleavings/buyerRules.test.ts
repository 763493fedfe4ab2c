import { randomUUID } from 'node:crypto';
import { putBuyerRules } from '../../../db/buyerRules.js';
import { describeEachPostgres } from '../../setup/database.js';
import { claimCall, other, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const countedBeforeTheLock: WrongForm = {
  name: "open holds are counted before the buyer's lock",
  changes: {
    'claim.sql': [
      [
        'perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));',
        `v_refusal := refused_by_rules(p_buyer_id, tahan_clock());
    perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));`,
      ],
      ['    v_refusal := refused_by_rules(p_buyer_id, v_now);\n', ''],
    ],
  },
};
const snapshotBeforeTheLock: WrongForm = {
  name: 'open holds are counted by a STABLE function in the statement that locks',
  changes: {
    'buyer_rules.sql': [
      [
        'returns jsonb\nlanguage plpgsql volatile as $$\ndeclare\n  v_rules',
        'returns jsonb\nlanguage plpgsql stable as $$\ndeclare\n  v_rules',
      ],
    ],
    'claim.sql': [
      [
        'perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));',
        `select refused_by_rules(p_buyer_id, tahan_clock()) into v_refusal
       from (select pg_advisory_xact_lock(buyer_lock(p_buyer_id)) offset 0) l;`,
      ],
      ['    v_refusal := refused_by_rules(p_buyer_id, v_now);\n', ''],
    ],
  },
};
const noRuleNoLock: WrongForm = {
  name: 'only a product with a limit of its own locks the buyer',
  changes: {
    'claim.sql': [
      ['if v_terms.limited then', 'if true then'],
      [
        'perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));',
        `if exists (select from products p where p.sku = any (v_skus) and p.per_buyer_limit is not null) then
      perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));
    end if;`,
      ],
    ],
  },
};
const extendsWithoutTheBuyer: WrongForm = {
  name: 'extend does not lock the buyer',
  changes: { 'extend.sql': [['perform pg_advisory_xact_lock(buyer_lock(v_buyer));', '']] },
};

const by = { actor: 'operator', reason: 'test' };

describeEachPostgres('the number of open holds, interleaved', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });

  const open = async (shop: Shop, buyerId: string) => {
    const [row] = await shop.query<{ open: number }>(
      `select count(*)::int as open from tahan.holds h
       where h.buyer_id = $1 and h.status = 'HELD' and h.expires_at > tahan.tahan_clock()`,
      [buyerId],
    );
    return row!.open;
  };
  const limited = async (shop: Shop) => {
    await putBuyerRules(shop.db, { maxOpenHolds: 1 }, by);
    return { sku: await shop.product([9, 9], { allocation: 'spread' }), buyerId: randomUUID() };
  };
  const unlimited = (shop: Shop) => putBuyerRules(shop.db, { maxOpenHolds: null }, by);

  decided(
    'S11, A12: the second claim of a buyer waits for the first one and then counts it',
    async (shop) => {
      const { sku, buyerId } = await limited(shop);
      const first = await other(shop, ...claimCall(await shop.request({ [sku]: 1 }, { buyerId })));
      const second = said(shop.claim({ [sku]: 1 }, { buyerId }));
      await whenWaiting(shop, 'tahan.claim', 1, second);
      await first.commit();
      const answer = await second;
      await unlimited(shop);
      return { second: answer, open: await open(shop, buyerId) };
    },
    {
      right: { second: 'BUYER_LIMIT', open: 1 },
      wrong: [
        [[countedBeforeTheLock, snapshotBeforeTheLock, noRuleNoLock], { second: 'HELD', open: 2 }],
      ],
    },
  );

  decided(
    'R10: a claim made after the end of a hold counts it when an extension of the last moment is through',
    async (shop) => {
      const { sku, buyerId } = await limited(shop);
      const hold = await shop.hold({ [sku]: 1 }, { buyerId });
      await shop.stopClock(hold, -1000);
      const extending = await other(shop, `select tahan.extend($1, 60, 'x', 'buyer') as answer`, [
        hold,
      ]);
      await shop.stopClock(hold, 1000);
      const claiming = said(shop.claim({ [sku]: 1 }, { buyerId }));
      await whenWaiting(shop, 'tahan.claim', 1, claiming);
      await extending.commit();
      const claimed = await claiming;
      await unlimited(shop);
      return { claimed, open: await open(shop, buyerId) };
    },
    {
      right: { claimed: 'BUYER_LIMIT', open: 1 },
      wrong: [[extendsWithoutTheBuyer, { claimed: 'HELD', open: 2 }]],
    },
  );
});
