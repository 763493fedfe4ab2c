import { beginRefund } from '../../../db/beginRefund.js';
import { confirm } from '../../../db/confirm.js';
import { finishRefund } from '../../../db/finishRefund.js';
import { requestRefund } from '../../../db/requestRefund.js';
import { describeEachPostgres } from '../../setup/database.js';
import { other, said, whenWaiting } from '../rivals.js';
import type { Shop } from '../shop.js';
import { bothForms } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const noLock: WrongForm = {
  name: 'the steps of a refund lock nothing',
  changes: {
    'refunds.sql': [
      [
        "  perform tahan.lock_holds(array[v_hold], clock_timestamp() + p_budget_ms * interval '1 millisecond', null);\n",
        '',
      ],
    ],
  },
};

/** A payment that came late and is to go back. */
async function due(shop: Shop) {
  const hold = await shop.hold({ [await shop.product([1])]: 1 }, { holdSeconds: 1 });
  await shop.shiftClock(2_000);
  const payment = await shop.pay(hold);
  await shop.shiftClock(0);
  await confirm(shop.db, hold, payment);
  return payment;
}

/** The answer of a call that finds the same step under way, not committed. */
async function behind<T>(
  shop: Shop,
  [name, ...values]: [string, ...unknown[]],
  call: () => Promise<T>,
): Promise<T> {
  const places = values.map((_, index) => `$${index + 1}`).join(', ');
  const first = await other(shop, `select tahan.${name}(${places}) as answer`, values);
  const second = call();
  second.catch(() => {});
  await whenWaiting(shop, `tahan.${name}`, 1, second);
  await first.commit();
  return second;
}

describeEachPostgres('two at once for one refund', (version) => {
  const decided = bothForms(version);

  decided(
    'F18: the second request waits, and finds the row of the first',
    async (shop) => {
      const payment = await due(shop);
      const call = () => requestRefund(shop.db, payment);
      return said(behind(shop, ['request_refund', 'test', payment.paymentId], call));
    },
    { right: 'REQUESTED', wrong: [[noLock, '23505']] },
  );

  decided(
    'F18: the second try waits, and is told that a call was begun before: it asks the provider first',
    async (shop) => {
      const payment = await due(shop);
      await requestRefund(shop.db, payment);
      const call = () => beginRefund(shop.db, payment, 'settlement');
      const begun = ['begin_refund', 'test', payment.paymentId, 'settlement'] as const;
      const answer = await behind(shop, [...begun], call);
      return 'calledBefore' in answer && answer.calledBefore;
    },
    { right: true, wrong: [[noLock, false]] },
  );

  decided(
    'F18: a try that the provider refuses does not undo one that it has executed',
    async (shop) => {
      const payment = await due(shop);
      await requestRefund(shop.db, payment);
      await beginRefund(shop.db, payment, 'settlement');
      const refused = { state: 'REFUSED', detail: 'gone' } as const;
      const call = () => finishRefund(shop.db, payment, 'settlement', refused);
      const done = ['settlement', 'EXECUTED', 're_1', null] as const;
      return said(behind(shop, ['finish_refund', 'test', payment.paymentId, ...done], call));
    },
    { right: 'ALREADY', wrong: [[noLock, 'TH902']] },
  );
});
