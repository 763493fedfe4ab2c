import type { PaymentRef } from '../db/values.js';

/** The one workflow of a hold: every message about the hold goes to this id. */
export function workflowId(holdId: string): string {
  return `hold:${holdId}`;
}

/** The one workflow that settles a payment whose hold has ended. */
export function settleWorkflowId(payment: PaymentRef): string {
  return `payment:${payment.provider}:${payment.paymentId}`;
}

/** The one workflow of a return, under its request id. */
export function returnWorkflowId(holdId: string, requestId: string): string {
  return `return:${holdId}:${requestId}`;
}

/** The one workflow that sends a payment's money back, for one cause. */
export function refundWorkflowId({ provider, paymentId }: PaymentRef, cause: string): string {
  return `refund:${provider}:${paymentId}:${cause}`;
}
