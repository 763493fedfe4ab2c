/**
 * What workflows may ask of Postgres. An activity returns every answer, refusals too, and throws
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
import { recordPayment } from '../db/recordPayment.js';
import type { PaymentEvent, RecordPaymentOutcome } from '../db/recordPayment.js';
import type { PaymentRef } from '../db/values.js';
import { attempt } from './attempt.js';

/** Activity names are operation names. */
export interface Activities {
  claim(request: ClaimRequest): Promise<ClaimOutcome>;
  confirm(holdId: string, payment: PaymentRef): Promise<ConfirmOutcome>;
  expire(holdId: string): Promise<ExpireOutcome>;
  cancel(holdId: string, reason: string, actor: string): Promise<CancelOutcome>;
  extend(holdId: string, seconds: number, requestId: string, actor: string): Promise<ExtendOutcome>;
  recordPayment(event: PaymentEvent): Promise<RecordPaymentOutcome>;
}

export function createActivities(db: Database): Activities {
  return {
    claim: (request) => attempt(() => claim(db, request)),
    confirm: (holdId, payment) => attempt(() => confirm(db, holdId, payment)),
    expire: (holdId) => attempt(() => expire(db, holdId)),
    cancel: (holdId, reason, actor) => attempt(() => cancel(db, holdId, reason, actor)),
    extend: (holdId, seconds, requestId, actor) =>
      attempt(() => extend(db, holdId, seconds, requestId, actor)),
    recordPayment: (event) => attempt(() => recordPayment(db, event)),
  };
}
