import {
  CancellationScope,
  allHandlersFinished,
  condition,
  log,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { ReturnOutcome } from '../db/returnSale.js';
import { startRefundOfReturn } from './effects.js';
import { areLines, demand, fieldsOf, isText } from './inbox.js';
import { returned } from './messages.js';
import type { ReturnRequest } from './messages.js';
import * as steps from './steps.js';

/** A request, and what Postgres said to it. */
interface Asked {
  request: ReturnRequest;
  answer?: ReturnOutcome;
}

/**
 * Takes sold units back and sends their money back, for one request id (R09). Postgres decides, and
 * makes the refund's row in the same transaction; this carries it on, whatever dies meanwhile. It is
 * carried out also when the caller has gone; callers who come later are told the same. Another request
 * under the same id is put to Postgres too, which refuses it. Shielded from cancellation: the goods
 * are back, and the money is the buyer's.
 */
export async function returnSale(request: ReturnRequest): Promise<ReturnOutcome> {
  const asked: Asked[] = [{ request }];
  setHandler(returned, ask, {
    validator: (one: unknown) => demand(isReturn(one), 'return', one),
  });

  return CancellationScope.nonCancellable(async () => {
    for (;;) {
      const next = asked.find(({ answer }) => answer === undefined);
      if (next) await carryOut(next);
      else if (!allHandlersFinished())
        await condition(() => asked.some((one) => !one.answer) || allHandlersFinished());
      else return asked[0]!.answer!; // with no await since: nobody who asks is left unanswered
    }
  });

  async function carryOut(one: Asked): Promise<void> {
    const answer = await steps.returnSale(one.request);
    one.answer = answer;
    setCurrentDetails(answer.outcome);
    if (answer.outcome === 'MISSING')
      log.error('the hold of a return has no row in Postgres', { holdId: request.holdId });
    if (answer.outcome === 'RETURNED' && answer.refund !== null)
      await startRefundOfReturn(request.holdId, answer.refund);
  }

  function ask(wanted: ReturnRequest): Promise<ReturnOutcome> {
    return CancellationScope.nonCancellable(async () => {
      const text = JSON.stringify(wanted);
      // What was answered before is asked again: its refund may have been refused since.
      let one = asked.find((open) => !open.answer && JSON.stringify(open.request) === text);
      if (one === undefined) asked.push((one = { request: wanted }));
      await condition(() => one.answer !== undefined);
      return one.answer!;
    });
  }
}

function isReturn(request: unknown): boolean {
  const { holdId, lines, reason, actor, requestId, restock, refundMinor } =
    fieldsOf<ReturnRequest>(request);
  return (
    isText(holdId, 36) &&
    (lines === null || areLines(lines)) &&
    isText(reason, 500) &&
    isText(actor, 255) &&
    isText(requestId, 255) &&
    typeof restock === 'boolean' &&
    (refundMinor === null || (Number.isSafeInteger(refundMinor) && refundMinor! >= 0))
  );
}
