import { confirm } from '../../../db/confirm.js';
import { extend } from '../../../db/extend.js';
import type { PaymentRef } from '../../../db/values.js';
import { describeEachPostgres } from '../../setup/database.js';
import { ledger } from '../books.js';
import { endOf, other, recorded, said, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

function recording(name: string, ...changes: [string, string][]): WrongForm {
  return { name, changes: { 'record_payment.sql': changes } };
}
function confirming(name: string, ...changes: [string, string][]): WrongForm {
  return { name, changes: { 'confirm.sql': changes } };
}

const nothingSettlesAMismatch: WrongForm = {
  name: 'a mismatch is answered and not settled',
  changes: {
    'record_payment.sql': mutant('a wrong amount stays pending').changes['record_payment.sql']!,
    'confirm.sql': [
      [
        "return settle(v_hold, v_payment, 'REFUND_DUE', 'MISMATCH');",
        "return jsonb_build_object('outcome', 'MISMATCH');",
      ],
    ],
  },
};
const refundStaysPending = recording('the money that went back is not noticed', [
  "elsif p_status = 'refunded' and p_amount_minor >= v_payment.amount_minor",
  'elsif false',
]);
const clockInTheCondition = confirming('confirm accepts WHERE HELD AND expires_at > clock', [
  '  if not v_payment.in_time then',
  `  update holds h set reason = 'paid' where h.id = p_hold_id and h.status = 'HELD' and h.expires_at > tahan_clock();
   if not found and v_hold.late_payment <> 'accept_if_available' then
     return settle(v_hold, v_payment, late_settlement(v_hold.late_payment), 'LATE');
   end if;
   if false then`,
]);

describeEachPostgres('money that settles nothing', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });
  const minute = 60_000;

  const forEver = Array.from({ length: 3 }, () => ['PAYMENT_PENDING', 'MISMATCH']).flat();

  decided(
    'A4, F23: a buyer who pays 1 cent for an order does not keep its unit: the payment is settled as it comes, and the hold ends',
    async (shop) => {
      const sku = await shop.product([1], { priceMinor: 1000, currency: 'EUR' });
      const hold = await shop.hold({ [sku]: 1 }, { order: true });
      const paid = await recorded(shop.pay(hold, { amountMinor: 1 }));
      await shop.shiftClock(11 * minute);
      const next = await said(shop.claim({ [sku]: 1 }));
      return { paid, next, end: await endOf(shop, hold) };
    },
    {
      right: { paid: 'RECORDED, in time, REFUND_DUE', next: 'HELD', end: ['ALREADY'] },
      wrong: [
        [
          nothingSettlesAMismatch,
          { paid: 'RECORDED, in time', next: 'INSUFFICIENT_STOCK', end: forEver },
        ],
        [
          mutant('a wrong amount stays pending'),
          {
            paid: 'RECORDED, in time',
            next: 'INSUFFICIENT_STOCK',
            end: ['PAYMENT_PENDING', 'MISMATCH', 'EXPIRED'],
          },
        ],
      ],
    },
  );

  decided(
    'A4: money that the provider took back before the confirmation keeps no unit',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const { paymentId } = await shop.pay(hold);
      const back = await recorded(shop.pay(hold, { paymentId, status: 'refunded' }));
      await shop.shiftClock(11 * minute);
      return { back, end: await endOf(shop, hold) };
    },
    {
      right: { back: 'RECORDED, in time, REFUNDED', end: ['EXPIRED'] },
      wrong: [
        [
          refundStaysPending,
          { back: 'DUPLICATE, in time', end: ['PAYMENT_PENDING', 'CONFIRMED', 'ALREADY'] },
        ],
      ],
    },
  );

  decided(
    'A1 (V1), R05: whether the money was in time is decided once, as it comes: a confirmation that waits over the end accepts it, one that begins after the end too',
    async (shop) => {
      const sku = await shop.product([2]);
      const holds = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
      const payments: PaymentRef[] = [];
      for (const hold of holds) payments.push(await shop.pay(hold));
      const locker = await other(shop, 'select from holds where id = $1 for update', [holds[0]]);
      const waiting = said(confirm(shop.db, holds[0]!, payments[0]!));
      await whenWaiting(shop, 'tahan.confirm');
      await shop.shiftClock(11 * minute);
      await locker.rollback();
      return [await waiting, await said(confirm(shop.db, holds[1]!, payments[1]!))];
    },
    {
      right: ['CONFIRMED', 'CONFIRMED'],
      wrong: [[clockInTheCondition, ['TOO_LATE', 'TOO_LATE']]],
    },
  );

  decided(
    'A1 (V1), F4, B15: an extension that waits over the end renews nothing',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const locker = await other(shop, 'select from holds where id = $1 for update', [hold]);
      const extending = said(extend(shop.db, hold, 60, 'x', 'buyer'));
      await whenWaiting(shop, 'tahan.extend');
      await shop.shiftClock(11 * minute);
      await locker.rollback();
      return { extending: await extending, end: await endOf(shop, hold) };
    },
    {
      right: { extending: 'EXPIRED', end: ['EXPIRED'] },
      wrong: [
        [mutant('extend renews an overdue hold'), { extending: 'EXTENDED', end: ['EXPIRED'] }],
        [
          {
            name: 'extend reads the clock before the lock',
            changes: {
              'extend.sql': [
                [
                  '  perform lock_holds(array[p_hold_id], v_budget_ends, null);',
                  '  v_now := tahan_clock();\n  perform lock_holds(array[p_hold_id], v_budget_ends, null);',
                ],
                ['  v_now := tahan_clock();\n  select r.answer', '  select r.answer'],
              ],
            },
          },
          { extending: 'EXTENDED', end: ['EXPIRED'] },
        ],
      ],
    },
  );

  decided(
    'F27: a confirmation whose answer was lost is repeated and hears that the order is paid',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const payment = await shop.pay(hold);
      const first = await said(confirm(shop.db, hold, payment));
      await shop.shiftClock(11 * minute);
      return [first, await said(confirm(shop.db, hold, payment))];
    },
    {
      right: ['CONFIRMED', 'ALREADY_CONFIRMED'],
      wrong: [
        [
          confirming('no open hold is read as too late', [
            '  if v_payment.settlement is not null then',
            `  if v_hold.status <> 'HELD' then
               return jsonb_build_object('outcome', 'TOO_LATE', 'settlement', 'REFUND_DUE', 'reason', 'LATE');
             elsif v_payment.settlement is not null then`,
          ]),
          ['CONFIRMED', 'TOO_LATE'],
        ],
      ],
    },
  );

  const accepting = { latePayment: 'accept_if_available' as const };
  const confirmCall = 'select tahan.confirm($1, $2, $3) as answer';

  decided(
    'F25, F27: of two payments confirmed at once the second waits for the first and is surplus',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const [one, two] = [await shop.pay(hold), await shop.pay(hold)];
      const first = await other<{ outcome: string }>(shop, confirmCall, [
        hold,
        one.provider,
        one.paymentId,
      ]);
      const second = said(confirm(shop.db, hold, two));
      await whenWaiting(shop, 'tahan.confirm');
      await first.commit();
      return [first.answer.outcome, await second];
    },
    {
      right: ['CONFIRMED', 'SURPLUS'],
      wrong: [[mutant('confirm trusts a status read before the lock'), ['CONFIRMED', '23514']]],
    },
  );

  decided(
    'A6, R11: a late payment that waits for the expiry of its hold claims the units again',
    async (shop) => {
      const sku = await shop.product([1], accepting);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(11 * minute);
      const payment = await shop.pay(hold);
      const expiring = await other(shop, 'select tahan.expire($1) as answer', [hold]);
      const confirming = said(confirm(shop.db, hold, payment));
      await whenWaiting(shop, 'tahan.confirm');
      await expiring.commit();
      return [await confirming, ...(await ledger(shop, { hold }))];
    },
    {
      right: [
        'CONFIRMED',
        'reserve 1 b1',
        'release_reservation 1 b1',
        'reserve 1 b1',
        'confirm_sold 1 b1',
      ],
      wrong: [
        [
          mutant('confirm trusts a status read before the lock'),
          ['23514', 'reserve 1 b1', 'release_reservation 1 b1'],
        ],
      ],
    },
  );

  decided(
    'A4: while a payment in time is pending a late one must wait for it, and is then surplus',
    async (shop) => {
      const sku = await shop.product([1], accepting);
      const hold = await shop.hold({ [sku]: 1 });
      const inTime = await shop.pay(hold);
      await shop.shiftClock(11 * minute);
      const late = await shop.pay(hold);
      const answers = [];
      for (const payment of [late, inTime, late]) {
        answers.push(await said(confirm(shop.db, hold, payment)));
      }
      return answers;
    },
    {
      right: ['PAYMENT_PENDING', 'CONFIRMED', 'SURPLUS'],
      wrong: [
        [
          mutant('a late payment overtakes a pending one'),
          ['CONFIRMED', 'SURPLUS', 'ALREADY_CONFIRMED'],
        ],
      ],
    },
  );

  decided(
    'R11: late money confirms nothing unless the product says so, also while the hold is still HELD',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(11 * minute);
      return said(confirm(shop.db, hold, await shop.pay(hold)));
    },
    {
      right: 'TOO_LATE',
      wrong: [[mutant('late acceptance under every policy'), 'CONFIRMED']],
    },
  );
});
