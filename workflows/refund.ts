import { CancellationScope, log, setCurrentDetails } from '@temporalio/workflow';
import type { PaymentRef } from '../db/values.js';
import { startSettlement } from './effects.js';
import { nameOf } from './inbox.js';
import type { RefundResult } from './messages.js';
import * as steps from './steps.js';

/**
 * Sends a payment's money back, for one cause. The row in `refunds` is what makes it once; this
 * asks the provider until there is an answer, for days if need be, where an operator sees each try.
 * What the provider refuses for good goes to an operator. Shielded from cancellation: the money is
 * somebody else's.
 */
export async function refund(
  holdId: string,
  payment: PaymentRef,
  cause: string,
): Promise<RefundResult> {
  return CancellationScope.nonCancellable(async () => {
    setCurrentDetails('Waiting for the provider');
    const refunded = await steps.sendRefund(payment, cause);
    setCurrentDetails(`Refund ${refunded.state}`);
    if (refunded.state === 'MISSING')
      log.error('a refund to send is unknown', { holdId, payment: nameOf(payment), cause });
    if (refunded.state === 'REFUSED') await startSettlement(holdId, payment);
    return refunded;
  });
}
