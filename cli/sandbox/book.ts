import { appendFileSync, existsSync, mkdirSync, readFileSync, truncateSync } from 'node:fs';
import { dirname } from 'node:path';

export interface Charge {
  payment_id: string;
  hold_id: string | null;
  order_number: string | null;
  /** What was really taken; the events may say the same and still not what the order asks. */
  amount_minor: number;
  currency: string;
  status: 'succeeded' | 'failed';
  created_at: string;
}

export interface Refund {
  refund_id: string;
  payment_id: string;
  /** Null for a refund that nobody asked for over HTTP. */
  key: string | null;
  amount_minor: number;
  currency: string;
  reason: string;
  status: 'succeeded';
  executed_at: string;
}

/** A webhook and what became of it. */
export interface Event {
  id: string;
  type: 'payment.succeeded' | 'payment.failed' | 'payment.refunded';
  payment_id: string;
  /** Events of one chain are sent one after the other. */
  chain: string;
  /** The raw JSON, the same at every try. */
  body: string;
  /** Sent at this time, or once the shop says that the hold is over. */
  due: { at: string } | { late: true };
  /** Sent so often at the same time, with the same id. */
  copies: number;
  bad_signature: 'never' | 'once' | 'always';
  /** A pause in the middle of the body. */
  slow_ms: number;
  repeats: boolean;
  state: 'waiting' | 'delivered' | 'given_up';
  tries: Try[];
}

export interface Try {
  at: string;
  copy: number;
  signed: 'well' | 'badly';
  /** Null where there was no answer. */
  status: number | null;
  /** The API's code or outcome, or what happened to the connection. */
  answer: string;
}

const counted = ['repeated_keys', 'refused', 'over_refunds_refused', 'faults'] as const;
export type Counted = (typeof counted)[number];

type Line =
  | { kind: 'charge'; charge: Charge }
  | { kind: 'refund'; refund: Refund }
  | { kind: 'event'; event: Event }
  | { kind: 'try'; event: string; tried: Try }
  | { kind: 'ended'; event: string; state: 'delivered' | 'given_up' }
  | { kind: 'count'; what: Counted };

/**
 * What the provider knows, whatever it answered. Each change is a line of the journal before it is
 * true, so a provider that is killed and started again has forgotten nothing.
 */
export class Book {
  readonly charges = new Map<string, Charge>();
  readonly refunds: Refund[] = [];
  readonly events = new Map<string, Event>();
  readonly counts = Object.fromEntries(counted.map((what) => [what, 0])) as Record<Counted, number>;
  readonly #file: string | undefined;

  constructor(file?: string) {
    this.#file = file;
    if (file === undefined) return;
    mkdirSync(dirname(file), { recursive: true });
    if (!existsSync(file)) return;
    const text = readFileSync(file);
    // A process that was killed may have left half a line: nobody was told of it.
    const whole = text.lastIndexOf('\n') + 1;
    if (whole < text.length) truncateSync(file, whole);
    for (const line of text.subarray(0, whole).toString().split('\n'))
      if (line !== '') this.#apply(JSON.parse(line) as Line);
  }

  record(line: Line): void {
    if (this.#file !== undefined) appendFileSync(this.#file, `${JSON.stringify(line)}\n`);
    this.#apply(line);
  }

  refundsOf(paymentId: string): Refund[] {
    return this.refunds.filter((refund) => refund.payment_id === paymentId);
  }

  eventsOf(paymentId: string): Event[] {
    return [...this.events.values()].filter((event) => event.payment_id === paymentId);
  }

  shown() {
    return {
      charges: [...this.charges.values()],
      refunds: this.refunds,
      events: [...this.events.values()],
      counts: this.counts,
    };
  }

  #apply(line: Line): void {
    switch (line.kind) {
      case 'charge':
        this.charges.set(line.charge.payment_id, line.charge);
        break;
      case 'refund':
        this.refunds.push(line.refund);
        break;
      case 'event':
        this.events.set(line.event.id, line.event);
        break;
      case 'try':
        this.events.get(line.event)?.tries.push(line.tried);
        break;
      case 'ended': {
        const event = this.events.get(line.event);
        if (event !== undefined) event.state = line.state;
        break;
      }
      case 'count':
        this.counts[line.what] += 1;
        break;
    }
  }
}
