/**
 * The nouns that every answer of the database is made of. Times are RFC 3339 strings in UTC with
 * milliseconds, money is an integer of minor units, intervals are whole milliseconds.
 */

export type HoldStatus = 'HELD' | 'CONFIRMED' | 'CANCELLED' | 'EXPIRED' | 'REJECTED';
export type OrderStatus = 'pending_payment' | 'paid' | 'cancelled' | 'expired';
export type Settlement = 'APPLIED' | 'REFUND_DUE' | 'REFUNDED' | 'ACCEPTED_LATE' | 'NEEDS_REVIEW';
export type SettlementReason = 'LATE' | 'SURPLUS' | 'MISMATCH' | 'RETURNED' | 'REVIEWED';
export type PaymentStatus = 'succeeded' | 'failed' | 'refunded';
/** CALLED: a call to the provider has begun, and what came of it is not known yet. */
export type RefundState = 'REQUESTED' | 'CALLED' | 'EXECUTED' | 'REFUSED' | 'NOT_NEEDED';
export type MovementType =
  'reserve' | 'confirm_sold' | 'release_reservation' | 'manual_adjustment' | 'restock' | 'return';

/** A product and how many of it; quantities are whole units, 1..10,000. */
export interface Line {
  sku: string;
  quantity: number;
}

/** What a refused claim lacked, per product: `available` is what a claim could have taken. */
export interface Shortfall {
  sku: string;
  requested: number;
  available: number;
}

/** Names a payment: the provider's id is unique only within the provider. */
export interface PaymentRef {
  provider: string;
  paymentId: string;
}

export interface Counts {
  available: number;
  held: number;
  sold: number;
}
