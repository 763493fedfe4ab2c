/**
 * What workflows may ask of Postgres, and of a payment provider. An activity returns every answer, refusals too, and throws
 * only faults: those are retried, and an operator sees their code.
 */
import { cancel } from '../db/cancel.js';
import type { CancelOutcome } from '../db/cancel.js';
import type { ClaimOutcome, ClaimRequest } from '../db/claim.js';
import type { ConfirmOutcome } from '../db/confirm.js';
import type { Changed } from '../db/changes.js';
import type { Database } from '../db/database.js';
import type { ExpireOutcome } from '../db/expire.js';
import { extend } from '../db/extend.js';
import type { ExtendOutcome } from '../db/extend.js';
import { release } from '../db/release.js';
import type { Release, ReleaseOutcome } from '../db/release.js';
import { returnSale } from '../db/returnSale.js';
import type { ReturnOfSale, ReturnOutcome } from '../db/returnSale.js';
import { recordPayment } from '../db/recordPayment.js';
import type { PaymentEvent, RecordPaymentOutcome } from '../db/recordPayment.js';
import type { PaymentRef } from '../db/values.js';
import { requestRefund } from '../db/requestRefund.js';
import type { RequestRefundOutcome } from '../db/requestRefund.js';
import { decidePayment } from '../db/decidePayment.js';
import type { DecidePaymentOutcome, PaymentDecision } from '../db/decidePayment.js';
import { attempt } from './attempt.js';
import { changeTogether } from './changeTogether.js';
import { claimTogether } from './claimTogether.js';
import { sendRefund } from './sendRefund.js';
import type { PaymentProviders, SentRefund } from './sendRefund.js';
import type { InTurn } from './turns.js';

/** What a hold asks for. Activity names are operation names. */
export interface HoldActivities {
  claim(request: ClaimRequest): Promise<ClaimOutcome & InTurn>;
  confirm(holdId: string, payment: PaymentRef): Promise<ConfirmOutcome>;
  expire(holdId: string): Promise<ExpireOutcome>;
  cancel(holdId: string, reason: string, actor: string): Promise<CancelOutcome>;
  extend(
    holdId: string,
    seconds: number,
    requestId: string,
    actor: string,
  ): Promise<ExtendOutcome & InTurn>;
  release(holdId: string, release: Release): Promise<ReleaseOutcome>;
  recordPayment(event: PaymentEvent): Promise<RecordPaymentOutcome>;
}

/** What becomes of money that confirms nothing, or whose goods come back. */
export interface MoneyActivities {
  requestRefund(payment: PaymentRef): Promise<RequestRefundOutcome>;
  decidePayment(payment: PaymentRef, decision: PaymentDecision): Promise<DecidePaymentOutcome>;
  sendRefund(payment: PaymentRef, cause: string): Promise<SentRefund>;
  returnSale(request: ReturnOfSale): Promise<ReturnOutcome>;
}

export type Activities = HoldActivities & MoneyActivities;

/**
 * Activities tell whoever shows availability what they have changed, after the commit and without
 * waiting for it. A repeat that finds its change made tells it too: the first answer may have been lost.
 *
 * @param providers the payment providers that this worker can ask for refunds
 * @param connections of the claims' pool, and those of the changes' pool for what holds ask for
 */
export function createActivities(
  db: Database,
  providers: PaymentProviders = () => undefined,
  { claims = 4, changes = 4 }: { claims?: number; changes?: number } = {},
): Activities {
  const claim = claimTogether(db, claims);
  const { confirm, expire, change } = changeTogether(db, changes);
  async function telling<T extends { outcome: string }>(work: Promise<T>, changed: Changed) {
    const answer = await work;
    if (thatChange.has(answer.outcome)) db.announce(changed);
    return answer;
  }
  const changing = <T extends { outcome: string }>(holdId: string, work: () => Promise<T>) =>
    attempt(() => telling(change(work), { holds: [holdId] }));
  return {
    claim: (request) =>
      attempt(() => {
        const skus = request.lines?.map(({ sku }) => sku);
        // What a cart held, the hold knows.
        return telling(claim(request), skus ? { skus } : { holds: [request.holdId] });
      }),
    confirm: (holdId, payment) =>
      attempt(() => telling(confirm({ holdId, payment }), { holds: [holdId] })),
    expire: (holdId) => attempt(() => telling(expire(holdId), { holds: [holdId] })),
    cancel: (holdId, reason, actor) => changing(holdId, () => cancel(db, holdId, reason, actor)),
    extend: (holdId, seconds, requestId, actor) =>
      changing(holdId, () => extend(db, holdId, seconds, requestId, actor)),
    release: (holdId, request) => changing(holdId, () => release(db, holdId, request)),
    recordPayment: (event) => attempt(() => change(() => recordPayment(db, event))),
    requestRefund: (payment) => attempt(() => requestRefund(db, payment)),
    decidePayment: (payment, decision) =>
      attempt(() => telling(decidePayment(db, payment, decision), { payments: [payment] })),
    sendRefund: (payment, cause) => attempt(() => sendRefund(db, providers, payment, cause)),
    returnSale: (request) =>
      attempt(() => telling(returnSale(db, request), { holds: [request.holdId] })),
  };
}

/** Outcomes after which availability may be another one; refusals, and what was not due, change nothing. */
const thatChange = new Set([
  ...['HELD', 'ALREADY', 'CONFIRMED', 'ALREADY_CONFIRMED', 'EXPIRED', 'CANCELLED', 'EXTENDED'],
  ...['ACCEPTED_LATE', 'RELEASED', 'RETURNED'],
]);
