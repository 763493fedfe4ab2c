/**
 * What can be said to a hold's workflow and what it answers. Workflow code and callers share this
 * file, so it names messages and nothing else: no client, no I/O.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { CancelOutcome } from '../db/cancel.js';
import type { ClaimOutcome, ClaimRequest } from '../db/claim.js';
import type { ConfirmOutcome } from '../db/confirm.js';
import type { DecidePaymentOutcome, PaymentDecision } from '../db/decidePayment.js';
import type { ExtendOutcome } from '../db/extend.js';
import type { Release, ReleaseOutcome } from '../db/release.js';
import type { ReturnOfSale, ReturnOutcome } from '../db/returnSale.js';
import type { SentRefund } from '../activities/sendRefund.js';
import type { HoldStatus, PaymentRef, PaymentStatus, Settlement } from '../db/values.js';

/** The input of a `hold` workflow. */
export interface HoldRequest extends ClaimRequest {
  /** Whether the search attributes are registered: upserting an unknown one would wedge the hold. */
  indexed: boolean;
}

/** Money that a payment service reports, as it may be signalled without passing the API. */
export interface PaymentSignal extends PaymentRef {
  /** `succeeded` when left out. */
  status?: PaymentStatus;
  /** Whole minor units and an ISO 4217 code, upper case. */
  amountMinor: number;
  currency: string;
  eventId?: string;
  /** Set by the API, which has stored the payment before it signals: it then only needs its confirmation. */
  recorded?: boolean;
}

export interface CancelRequest {
  reason: string;
  actor: string;
}

export interface ExtendRequest {
  seconds: number;
  actor: string;
  /** A repeat with the same id extends once. */
  requestId: string;
}

/** A repeat with the same request id releases once. */
export type ReleaseRequest = Release;

/**
 * The claim's answer. `requestHash` is that of the request the answer belongs to: a caller with the
 * same key and another body compares it and is refused (B19). CLAIM_TOO_LATE is never answered.
 */
export type Claimed = Exclude<ClaimOutcome, { outcome: 'CLAIM_TOO_LATE' }> & {
  requestHash: string;
};

/** Where a hold's workflow stands; a refused claim shows the refusal's name. */
export type Stage = 'CLAIMING' | HoldStatus | Claimed['outcome'] | 'CLAIM_TOO_LATE' | 'MISSING';

/** For operators and tests; what happened is in Postgres. */
export interface HoldState {
  stage: Stage;
  expiresAt: string | null;
  /** Messages that wait to be handled. */
  waiting: number;
  /** Distinct payments taken in, and signals dropped: malformed, repeated, or beyond the limit. */
  payments: number;
  dropped: number;
  notes: string[];
}

/** How a hold's workflow ended; shown as the result in the Temporal UI. */
export type HoldResult = { outcome: Exclude<Stage, 'CLAIMING'> } & Record<string, unknown>;

/** How a payment was settled by `settlePayment`: REFUND_DUE means that its refund has been started. */
export interface SettleResult {
  outcome: Exclude<ConfirmOutcome['outcome'], 'PAYMENT_PENDING'>;
  settlement: Settlement | null;
}

/** An operator's answer to a payment in review. */
export type DecisionRequest = PaymentDecision;

/** The input of a `returnSale` workflow, and what is asked of it. */
export type ReturnRequest = ReturnOfSale;

/** How a refund ended; MISSING is a defect. */
export type RefundResult = SentRefund;

export const paymentReceived = defineSignal<[PaymentSignal]>('paymentReceived');
/** To a refund that runs: when it ends refused, it was asked for again meanwhile. */
export const sendAgain = defineSignal('sendAgain');
export const claimed = defineUpdate<Claimed>('claimed');
export const cancel = defineUpdate<CancelOutcome, [CancelRequest]>('cancel');
export const extend = defineUpdate<ExtendOutcome, [ExtendRequest]>('extend');
export const release = defineUpdate<ReleaseOutcome, [ReleaseRequest]>('release');
export const returned = defineUpdate<ReturnOutcome, [ReturnRequest]>('returned');
export const decide = defineUpdate<DecidePaymentOutcome, [DecisionRequest]>('decide');
export const state = defineQuery<HoldState>('state');
