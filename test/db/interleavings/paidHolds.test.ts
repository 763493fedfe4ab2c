import { cancel } from '../../../db/cancel.js';
import { claim } from '../../../db/claim.js';
import { confirm } from '../../../db/confirm.js';
import { expire } from '../../../db/expire.js';
import { describeEachPostgres } from '../../setup/database.js';
import { statusOf } from '../books.js';
import { beingPaid, call, other, said, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const minutes = 60_000;
const lockTheHold = 'perform lock_holds(array[p_hold_id], v_budget_ends, null);';
const unpaid = `not exists (select from payments p
  where p.hold_id = h.id and p.status = 'succeeded' and p.in_time and p.settlement is null)`;

const expireInOneStatement: WrongForm = {
  name: 'expire is one conditional UPDATE',
  changes: {
    'expire.sql': [
      [
        lockTheHold,
        `update holds h set status = 'EXPIRED', reason = 'payment window over', closed_at = tahan_clock()
         where h.id = p_hold_id and h.status = 'HELD' and h.expires_at <= tahan_clock() and ${unpaid};
         if found then
           perform move_units(a.bin_id, 'release_reservation', a.quantity, p_hold_id, null, 'over', 'timer', '{}', tahan_clock())
           from allocations a where a.hold_id = p_hold_id;
           update hold_lines l set open_until = null where l.hold_id = p_hold_id;
           return jsonb_build_object('outcome', 'EXPIRED');
         end if;
         ${lockTheHold}`,
      ],
    ],
  },
};

/** The reclaim that locks and looks at the payment in one statement. */
function reclaimInOneStatement(name: string, from: string, condition: string): WrongForm {
  return {
    name,
    changes: {
      'claim.sql': [
        [
          'perform lock_holds(v_overdue, p_budget_ends, p_deadline);',
          `perform wait_within(p_budget_ends, p_deadline);
           select coalesce(array_agg(s.id order by s.id), '{}') into v_reclaim from (
             select h.id from ${from}
             where h.id = any (v_overdue) and h.status = 'HELD' and h.expires_at <= v_now and ${condition}
             order by h.id for no key update of h) s;`,
        ],
        [
          `select coalesce(array_agg(h.id order by h.id), '{}') into v_reclaim
      from holds h
      where h.id = any (v_overdue) and h.status = 'HELD' and h.expires_at <= v_now
        and pending_payment(h.id) is null;`,
          '',
        ],
      ],
    },
  };
}

const askWhileLocking = reclaimInOneStatement(
  'the reclaim asks a STABLE function while it locks',
  'holds h',
  'pending_payment(h.id) is null',
);
const reclaims: WrongForm[] = [
  reclaimInOneStatement('the reclaim locks WHERE NOT EXISTS a payment', 'holds h', unpaid),
  reclaimInOneStatement(
    'the reclaim locks in a join with the payments',
    'holds h left join payments p on p.hold_id = h.id',
    'p.hold_id is null',
  ),
  {
    ...askWhileLocking,
    changes: {
      ...askWhileLocking.changes,
      'basics.sql': [
        [
          'pending_payment(p_hold_id uuid) returns jsonb\nlanguage sql volatile',
          'pending_payment(p_hold_id uuid) returns jsonb\nlanguage sql stable',
        ],
      ],
    },
  },
];

describeEachPostgres('a hold that is being paid as it ends', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 8 } });

  const waits = {
    'only locked the hold': async () => {},
    'changed the hold too': (payment: Awaited<ReturnType<typeof beingPaid>>, hold: string) =>
      payment.client.query(`update holds set metadata = '{"paid": "soon"}' where id = $1`, [hold]),
  };

  for (const [title, touch] of Object.entries(waits)) {
    const number = title.startsWith('only') ? 'V2' : 'V3b';
    decided(
      `R06, A1 (${number}): an expiry that waited for a payment which ${title} finds it, and nobody else gets the unit`,
      async (shop) => {
        const sku = await shop.product([1]);
        const hold = await shop.hold({ [sku]: 1 });
        const payment = await beingPaid(shop, hold, `pays-${hold}`);
        await touch(payment, hold);
        await shop.shiftClock(11 * minutes);
        const expiry = said(expire(shop.db, hold));
        await whenWaiting(shop, 'tahan.expire', 1, expiry);
        await payment.commit();
        return {
          inTime: payment.answer.inTime,
          expiry: await expiry,
          next: await said(shop.claim({ [sku]: 1 })),
          paid: await said(confirm(shop.db, hold, { provider: 'test', paymentId: `pays-${hold}` })),
          hold: await statusOf(shop, hold),
        };
      },
      {
        right: {
          inTime: true,
          expiry: 'PAYMENT_PENDING',
          next: 'INSUFFICIENT_STOCK',
          paid: 'CONFIRMED',
          hold: 'CONFIRMED',
        },
        wrong: [
          [
            [
              expireInOneStatement,
              mutant('expire reads the payment in the locking statement'),
              mutant('expire decides before the lock'),
            ],
            { inTime: true, expiry: 'EXPIRED', next: 'HELD', paid: 'TOO_LATE', hold: 'EXPIRED' },
          ],
        ],
      },
    );
  }

  for (const [title, touch] of Object.entries(waits)) {
    const number = title.startsWith('only') ? 'V3, V15b' : 'V3b, V15b';
    decided(
      `R07, R05, A1 (${number}): a claim that waited for a payment which ${title} takes no paid hold back`,
      async (shop) => {
        const sku = await shop.product([1]);
        const hold = await shop.hold({ [sku]: 1 });
        const payment = await beingPaid(shop, hold, `pays-${hold}`);
        await touch(payment, hold);
        await shop.shiftClock(11 * minutes);
        const claiming = said(shop.claim({ [sku]: 1 }));
        await whenWaiting(shop, 'tahan.claim', 1, claiming);
        await payment.commit();
        return {
          inTime: payment.answer.inTime,
          claim: await claiming,
          paid: await said(confirm(shop.db, hold, { provider: 'test', paymentId: `pays-${hold}` })),
          hold: await statusOf(shop, hold),
        };
      },
      {
        right: { inTime: true, claim: 'INSUFFICIENT_STOCK', paid: 'CONFIRMED', hold: 'CONFIRMED' },
        wrong: [
          [
            [...reclaims, mutant('reclaim does not look again')],
            { inTime: true, claim: 'HELD', paid: 'TOO_LATE', hold: 'EXPIRED' },
          ],
        ],
      },
    );
  }

  decided(
    'R05, R35, A1: a cancel that waited for a payment gives nothing away: what is being paid is not cancelled',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const payment = await beingPaid(shop, hold, `pays-${hold}`);
      const cancelling = said(cancel(shop.db, hold, 'changed my mind', 'buyer'));
      await whenWaiting(shop, 'tahan.cancel');
      await payment.commit();
      return {
        cancel: await cancelling,
        next: await said(shop.claim({ [sku]: 1 })),
        paid: await said(confirm(shop.db, hold, { provider: 'test', paymentId: `pays-${hold}` })),
      };
    },
    {
      right: { cancel: 'PAYMENT_PENDING', next: 'INSUFFICIENT_STOCK', paid: 'CONFIRMED' },
      wrong: [
        [
          [
            mutant('cancel gives a paid hold away'),
            {
              name: 'cancel looks for the payment before the lock',
              changes: {
                'cancel.sql': [
                  [lockTheHold, `v_pending := pending_payment(p_hold_id);\n  ${lockTheHold}`],
                  ['  v_pending := pending_payment(p_hold_id);\n  if v_pending', '  if v_pending'],
                ],
              },
            },
          ],
          { cancel: 'CANCELLED', next: 'HELD', paid: 'TOO_LATE' },
        ],
      ],
    },
  );

  decided(
    'A1 (V15), F47: a database that defaults to REPEATABLE READ gets a refusal, not a paid hold expired on an old snapshot',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const payment = await beingPaid(shop, hold, `pays-${hold}`);
      await shop.shiftClock(11 * minutes);
      const session = await shop.session();
      await session.query(`set default_transaction_isolation = 'repeatable read'`);
      const expiry = said(call(session, 'select tahan.expire($1) as answer', [hold]));
      await whenWaiting(shop, 'tahan.expire', 1, expiry);
      await payment.commit();
      return { expiry: await expiry, hold: await statusOf(shop, hold) };
    },
    {
      right: { expiry: 'TH900', hold: 'HELD' },
      wrong: [
        [
          {
            name: 'nobody asks for the isolation level',
            changes: {
              'basics.sql': [
                [
                  "if current_setting('transaction_isolation') <> 'read committed' then",
                  'if false then',
                ],
              ],
            },
          },
          { expiry: 'EXPIRED', hold: 'EXPIRED' },
        ],
      ],
    },
  );

  decided(
    'A1, A5, F4: in 30 rounds a payment that begins 1 to 3 ms before the end, and waits past it behind somebody else, with an expiry and a claim behind it, confirms its hold',
    async (shop) => {
      const seen: Record<string, number> = {};
      for (let round = 0; round < 30; round += 1) {
        const sku = await shop.product([1]);
        const hold = await shop.hold({ [sku]: 1 });
        const request = await shop.request({ [sku]: 1 });
        const locker = await other(shop, 'select from tahan.holds where id = $1 for update', [
          hold,
        ]);
        await shop.stopClock(hold, -1 - (round % 3));
        const paying = shop.pay(hold);
        await whenWaiting(shop, 'tahan.record_payment');
        await shop.stopClock(hold, round % 2);
        const expiring = said(expire(shop.db, hold));
        await whenWaiting(shop, 'tahan.expire');
        const claiming = said(claim(shop.db, { ...request, claimDeadline: await shop.now(3500) }));
        await whenWaiting(shop, 'tahan.claim');
        await locker.rollback();
        const payment = await paying;
        await Promise.all([expiring, claiming]);
        const inTime = payment.outcome === 'RECORDED' && payment.inTime;
        const became = `${inTime ? 'in time' : 'late'}, ${await said(confirm(shop.db, hold, payment))}`;
        seen[became] = (seen[became] ?? 0) + 1;
        await shop.shiftClock(0);
      }
      return seen;
    },
    {
      right: { 'in time, CONFIRMED': 30 },
      wrong: [
        [mutant('record_payment reads the clock after the lock'), { 'late, TOO_LATE': 30 }],
        [expireInOneStatement, { 'in time, TOO_LATE': 30 }],
      ],
    },
  );
});
