/**
 * What workflows may ask of Postgres, and of a payment provider. An activity returns every answer, refusals too, and throws
 * only faults: those are retried, and an operator sees their code.
 */
import { cancel } from '../db/cancel.js';
import type { CancelOutcome } from '../db/cancel.js';
import { claim } from '../db/claim.js';
import type { ClaimOutcome, ClaimRequest } from '../db/claim.js';
import { confirm } from '../db/confirm.js';
import type { ConfirmOutcome } from '../db/confirm.js';
import type { Database } from '../db/database.js';
import { expire } from '../db/expire.js';
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
import { sendRefund } from './sendRefund.js';
import type { PaymentProviders, SentRefund } from './sendRefund.js';

/** What a hold asks for. Activity names are operation names. */
export interface HoldActivities {
  claim(request: ClaimRequest): Promise<ClaimOutcome>;
  confirm(holdId: string, payment: PaymentRef): Promise<ConfirmOutcome>;
  expire(holdId: string): Promise<ExpireOutcome>;
  cancel(holdId: string, reason: string, actor: string): Promise<CancelOutcome>;
  extend(holdId: string, seconds: number, requestId: string, actor: string): Promise<ExtendOutcome>;
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

/** @param providers the payment providers that this worker can ask for refunds */
export function createActivities(
  db: Database,
  providers: PaymentProviders = () => undefined,
): Activities {
  return {
    claim: (request) => attempt(() => claim(db, request)),
    confirm: (holdId, payment) => attempt(() => confirm(db, holdId, payment)),
    expire: (holdId) => attempt(() => expire(db, holdId)),
    cancel: (holdId, reason, actor) => attempt(() => cancel(db, holdId, reason, actor)),
    extend: (holdId, seconds, requestId, actor) =>
      attempt(() => extend(db, holdId, seconds, requestId, actor)),
    release: (holdId, request) => attempt(() => release(db, holdId, request)),
    recordPayment: (event) => attempt(() => recordPayment(db, event)),
    requestRefund: (payment) => attempt(() => requestRefund(db, payment)),
    decidePayment: (payment, decision) => attempt(() => decidePayment(db, payment, decision)),
    sendRefund: (payment, cause) => attempt(() => sendRefund(db, providers, payment, cause)),
    returnSale: (request) => attempt(() => returnSale(db, request)),
  };
}
