/** What the generator is told to do, and what it answers with: plain data, from process to process. */
export interface Plan {
  /** On 127.0.0.1. */
  port: number;
  /** A shop's key. */
  key: string;
  /** The payment service's secret. */
  secret: string;
  /** Begins each buyer's id, so that no two plans share a buyer. */
  name: string;
  arrivals: Arrivals;
  /** The n-th visit is for one unit of the n-th of these, over and over. */
  skus: string[];
  /** Seconds, or the moment at which the hold ends, by the wall clock. Missing: the product's own. */
  holds?: { seconds: number } | { untilMs: number };
  /** Pays what it holds; the webhook's 2xx ends the visit. */
  pays?: boolean;
  /** Who is told 202, 429 or 503 repeats after Retry-After, until so long after the intended start. */
  patienceMs: number;
  /** A refusal is not taken either: asked again after so long, as by somebody who waits for a unit. */
  insistAfterMs?: number;
}

/**
 * When visits begin. `open` and `at` do not wait for answers: what is slow now does not keep the next
 * buyer at home. `closed` has so many clients, each of them begins when its last visit has ended.
 */
export type Arrivals =
  | { kind: 'open'; perSecond: number; count: number }
  | { kind: 'at'; timesMs: number[] }
  | { kind: 'closed'; clients: number; count: number }
  | { kind: 'closed'; clients: number; seconds: number };

export interface Visit {
  /** GAVE_UP: undecided when its patience ended. FAILED: an answer that no buyer may get. */
  end: 'HELD' | 'PAID' | 'REFUSED' | 'GAVE_UP' | 'FAILED';
  holdId: string | null;
  /** When the hold ends, as the answer says. */
  expiresMs: number | null;
  /** Of all these the wall clock's. When it was to begin, whether or not it could. */
  intendedMs: number;
  /** The last try of the checkout: sent, answered. */
  sentMs: number;
  decidedMs: number;
  /** When the payment was to be sent, and the webhook's 2xx. */
  payMs: number | null;
  paidMs: number | null;
}

export interface Loaded {
  visits: Visit[];
  /** How often each answer came: `201`, `409 INSUFFICIENT_STOCK`, `no answer`. */
  answers: Record<string, number>;
  /** Of the generator, while this plan ran. */
  cpuSeconds: number;
}

/** From the bench to the generator, and back. */
export type Order = { id: number; plan: Plan } | { id: number; stop: true };
export type Report = { id: number; loaded: Loaded } | { id: number; error: string };
