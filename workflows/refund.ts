import { CancellationScope, log, setCurrentDetails, setHandler } from '@temporalio/workflow';
import type { PaymentRef } from '../db/values.js';
import { startSettlement } from './effects.js';
import { nameOf } from './inbox.js';
import { sendAgain } from './messages.js';
import type { RefundResult } from './messages.js';
import * as steps from './steps.js';

/**
 * Sends a payment's money back, for one cause. The row in `refunds` is what makes it once; this
 * asks the provider until there is an answer, for days if need be, where an operator sees each try.
 * What the provider refuses for good goes to an operator; one that was asked for
 * again while its refusal was written is sent again. Shielded from cancellation: the money is
 * somebody else's.
 */
export async function refund(
  holdId: string,
  payment: PaymentRef,
  cause: string,
): Promise<RefundResult> {
  let askedAgain = false;
  setHandler(sendAgain, () => void (askedAgain = true));
  return CancellationScope.nonCancellable(async () => {
    let refunded: RefundResult;
    do {
      askedAgain = false;
      setCurrentDetails('Waiting for the provider');
      refunded = await steps.sendRefund(payment, cause);
      setCurrentDetails(`Refund ${refunded.state}`);
    } while (refunded.state === 'REFUSED' && askedAgain);
    if (refunded.state === 'MISSING')
      log.error('a refund to send is unknown', { holdId, payment: nameOf(payment), cause });
    // Money of a return is asked for again by the return itself; with no await since, none is lost.
    if (refunded.state === 'REFUSED' && cause === 'settlement')
      await startSettlement(holdId, payment);
    return refunded;
  });
}
