import { randomUUID } from 'node:crypto';
import { claim } from '../../../db/claim.js';
import { confirm } from '../../../db/confirm.js';
import { expire } from '../../../db/expire.js';
import { extend } from '../../../db/extend.js';
import { describeEachPostgres } from '../../setup/database.js';
import { statusOf } from '../books.js';
import { call, endOf, other, recorded, otherOnBins, said, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

function recording(name: string, ...changes: [string, string][]): WrongForm {
  return { name, changes: { 'record_payment.sql': changes } };
}
function confirming(name: string, ...changes: [string, string][]): WrongForm {
  return { name, changes: { 'confirm.sql': changes } };
}
const keepEvent =
  'perform keep_event(p_provider, p_event_id, p_payment_id, v_hold.id, p_status, p_payload, v_began);';
const eventSeen = (name: string, more: string) =>
  recording(name, [
    keepEvent,
    `if exists (select from payment_events e where e.event_id = p_event_id ${more}) then
       return jsonb_build_object('outcome', 'DUPLICATE');
     end if;
     ${keepEvent}`,
  ]);

const statusBeforeTheLock = recording('record_payment trusts a status read before the lock', [
  '  perform lock_holds(array[v_hold.id], v_budget_ends, null);\n  select h.* into v_hold from holds h where h.id = v_hold.id;\n',
  '  perform lock_holds(array[v_hold.id], v_budget_ends, null);\n',
]);
const stampAlone = recording('in time is the stamp alone', [
  "v_payment.in_time := v_hold.status = 'HELD' and v_began < v_hold.expires_at;",
  'v_payment.in_time := v_began < v_hold.expires_at;',
]);
const computedAgain = confirming('in time is computed again when it is asked for', [
  '  if not v_payment.in_time then',
  '  if v_payment.received_at >= v_hold.expires_at then',
]);
const paymentMoves = recording('a payment moves to the hold that was named last', [
  'on conflict on constraint payments_once do nothing;',
  'on conflict on constraint payments_once do update set hold_id = excluded.hold_id;',
]);
const rejectedIsNoCase: WrongForm = {
  name: 'nobody thought of money for a REJECTED hold',
  changes: {
    'record_payment.sql': [
      [
        "elsif v_hold.status in ('CANCELLED', 'REJECTED') then",
        "elsif v_hold.status = 'CANCELLED' then",
      ],
    ],
    'confirm.sql': [
      [
        "elsif v_hold.status in ('CANCELLED', 'REJECTED') then",
        "elsif v_hold.status = 'CANCELLED' then",
      ],
    ],
  },
};

describeEachPostgres('money that arrives at the wrong moment', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });
  const minute = 60_000;

  decided(
    'R05, A5 (1, 5): a payment that begins in time and waits past the end behind a cancel, which then gives up, is in time: nothing was given away',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const blocker = await otherOnBins(shop, sku);
      const canceller = await shop.session();
      const [pid] = (await canceller.query<{ pid: number }>('select pg_backend_pid() as pid')).rows;
      const cancelling = said(call(canceller, `select tahan.cancel($1, 'x', 'buyer')`, [hold]));
      await whenWaiting(shop, 'tahan.cancel');
      const paying = recorded(shop.pay(hold, { paymentId: hold }));
      await whenWaiting(shop, 'tahan.record_payment');
      await shop.shiftClock(11 * minute);
      await shop.query('select pg_cancel_backend($1)', [pid!.pid]);
      const answers = [await cancelling, await paying];
      await blocker.rollback();
      return [...answers, ...(await endOf(shop, hold))];
    },
    {
      right: ['57014', 'RECORDED, in time', 'PAYMENT_PENDING', 'CONFIRMED', 'ALREADY'],
      wrong: [
        [
          mutant('record_payment reads the clock after the lock'),
          ['57014', 'RECORDED, late', 'EXPIRED'],
        ],
      ],
    },
  );

  decided(
    'R05, A5 (5): a payment that begins in time but finds the hold given away is late',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const cancelling = await other(shop, `select tahan.cancel($1, 'x', 'buyer')`, [hold]);
      const paying = recorded(shop.pay(hold));
      await whenWaiting(shop, 'tahan.record_payment');
      await cancelling.commit();
      return paying;
    },
    {
      right: 'RECORDED, late, REFUND_DUE',
      wrong: [
        [statusBeforeTheLock, 'RECORDED, in time'],
        [stampAlone, 'RECORDED, in time, REFUND_DUE'],
      ],
    },
  );

  decided(
    'A5 (2), F15: after a step back of the clock a payment for an EXPIRED hold is late, whatever its stamp says',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.shiftClock(11 * minute);
      await expire(shop.db, hold);
      await shop.shiftClock(0);
      const payment = await shop.pay(hold);
      const confirmed = await said(confirm(shop.db, hold, payment));
      return { paid: await recorded(Promise.resolve(payment)), confirmed };
    },
    {
      right: { paid: 'RECORDED, late, REFUND_DUE', confirmed: 'TOO_LATE' },
      // An expired hold that was paid in time: the books say that the shop broke its word.
      wrong: [[stampAlone, { paid: 'RECORDED, in time, REFUND_DUE', confirmed: 'TOO_LATE' }]],
    },
  );

  decided(
    'A5 (2), F15: a late payment stays late when the clock steps back and the hold is extended',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      await shop.stopClock(hold, 1);
      const payment = await shop.pay(hold);
      await shop.shiftClock(0);
      await extend(shop.db, hold, 60, 'x', 'buyer');
      return [
        await recorded(Promise.resolve(payment)),
        await said(confirm(shop.db, hold, payment)),
      ];
    },
    {
      right: ['RECORDED, late', 'TOO_LATE'],
      wrong: [[computedAgain, ['RECORDED, late', 'CONFIRMED']]],
    },
  );

  decided(
    'A5 (3): a payment that failed in time and succeeds after the end counts from when the money came',
    async (shop) => {
      const sku = await shop.product([1]);
      const hold = await shop.hold({ [sku]: 1 });
      const { paymentId } = await shop.pay(hold, { status: 'failed' });
      await shop.shiftClock(11 * minute);
      return recorded(shop.pay(hold, { paymentId }));
    },
    {
      right: 'RECORDED, late',
      wrong: [
        [mutant('record_payment keeps the first stamp of a failed payment'), 'RECORDED, in time'],
      ],
    },
  );

  decided(
    'A5 (4): a payment pays for one hold, and the same event id from another provider is another event',
    async (shop) => {
      const sku = await shop.product([2]);
      const [mine, theirs] = [await shop.hold({ [sku]: 1 }), await shop.hold({ [sku]: 1 })];
      const event = { paymentId: randomUUID(), eventId: randomUUID() };
      const payment = await shop.pay(mine, event);
      const again = await said(shop.pay(theirs, { ...event, eventId: randomUUID() }));
      const namesake = await shop.pay(theirs, { ...event, provider: 'second' });
      return {
        again,
        mine: await said(confirm(shop.db, mine, payment)),
        namesake: namesake.outcome,
        theirs: await said(confirm(shop.db, theirs, namesake)),
      };
    },
    {
      right: { again: 'OTHER_HOLD', mine: 'CONFIRMED', namesake: 'RECORDED', theirs: 'CONFIRMED' },
      wrong: [
        [
          paymentMoves,
          { again: 'RECORDED', mine: 'MISSING', namesake: 'RECORDED', theirs: 'CONFIRMED' },
        ],
        [
          eventSeen('an event is known by its id alone', ''),
          { again: 'OTHER_HOLD', mine: 'CONFIRMED', namesake: 'DUPLICATE', theirs: 'MISSING' },
        ],
      ],
    },
  );

  decided(
    'A5 (6), B09: an event that was unmatched matches when it comes again, and money for a REJECTED hold goes back',
    async (shop) => {
      const sku = await shop.product([1]);
      const request = await shop.request({ [sku]: 1 });
      const event = { paymentId: request.holdId, eventId: request.holdId };
      const early = await said(shop.pay(request.holdId, event));
      await claim(shop.db, request);
      const second = await recorded(shop.pay(request.holdId, event));
      const confirmed = await said(
        confirm(shop.db, request.holdId, { provider: 'test', ...event }),
      );
      const refused = await shop.request({ [sku]: 1 });
      await claim(shop.db, refused);
      const lost = await shop.pay(refused.holdId);
      return {
        matched: [early, second, confirmed],
        lost: [
          await recorded(Promise.resolve(lost)),
          await said(confirm(shop.db, refused.holdId, lost)),
          await statusOf(shop, refused.holdId),
        ],
      };
    },
    {
      right: {
        matched: ['UNMATCHED', 'RECORDED, in time', 'CONFIRMED'],
        lost: ['RECORDED, late, REFUND_DUE', 'TOO_LATE', 'REJECTED'],
      },
      wrong: [
        [
          eventSeen('an event that was seen before is a duplicate', 'and e.provider = p_provider'),
          {
            matched: ['UNMATCHED', 'DUPLICATE', 'MISSING'],
            lost: ['RECORDED, late, REFUND_DUE', 'TOO_LATE', 'REJECTED'],
          },
        ],
        [
          rejectedIsNoCase,
          {
            matched: ['UNMATCHED', 'RECORDED, in time', 'CONFIRMED'],
            lost: ['RECORDED, late', 'TH902', 'REJECTED'],
          },
        ],
      ],
    },
  );
});
