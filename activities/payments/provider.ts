/** What a refund needs to say to the provider that took the money. */
export interface RefundRequest {
  /** The provider's own id of the payment. */
  paymentId: string;
  /** Whole minor units of the payment's currency (ISO 4217, upper case); above zero. */
  amountMinor: number;
  currency: string;
  /**
   * Made from payment and cause, the same at every try for ever (F18): the provider's idempotency
   * key, and what an earlier call is found by when the provider has forgotten the key.
   */
  key: string;
  /** Why, for the provider's own book: LATE, SURPLUS, MISMATCH, REVIEWED, or a return's reason. */
  reason: string;
  holdId: string;
}

export type RefundAnswer =
  /** The provider has it: the money goes back, or is back. */
  | { outcome: 'EXECUTED'; providerRef: string }
  /** No, and never: asking again would change nothing. An operator must look. */
  | { outcome: 'REFUSED'; detail: string };

/**
 * The way to a payment provider. Whatever is not a clear answer (no connection, a timeout, a 5xx, a
 * rate limit) is thrown as an Error with a short message without secrets: the caller tries again.
 */
export interface PaymentProvider {
  /** The refund that an earlier call with this key has made, in whatever state; null when there is none. */
  findRefund(request: RefundRequest, signal: AbortSignal): Promise<RefundAnswer | null>;
  /** Sends the money back; with a key that was used before, the provider answers what it answered then. */
  refund(request: RefundRequest, signal: AbortSignal): Promise<RefundAnswer>;
}
