import { CancellationScope, condition, log, setHandler } from '@temporalio/workflow';
import type { CancelOutcome } from '../db/cancel.js';
import type { ExtendOutcome } from '../db/extend.js';
import type { ReleaseOutcome } from '../db/release.js';
import type { Line, PaymentRef, PaymentStatus } from '../db/values.js';
import { cancel, extend, paymentReceived, release } from './messages.js';
import type { CancelRequest, ExtendRequest, PaymentSignal, ReleaseRequest } from './messages.js';

export interface Payment extends PaymentRef {
  status: PaymentStatus;
  amountMinor: number;
  currency: string;
  eventId: string | null;
  recorded: boolean;
}

/** A question whose asker waits until `answer` is written into it. */
interface Question<Kind, Request, Answer> {
  kind: Kind;
  request: Request;
  answer?: Answer;
}

export type Incoming =
  | { kind: 'payment'; payment: Payment }
  | Question<'cancel', CancelRequest, CancelOutcome>
  | Question<'extend', ExtendRequest, ExtendOutcome>
  | Question<'release', ReleaseRequest, ReleaseOutcome>;

/** Beyond it a sender is broken or hostile; each payment costs the hold up to three activities. */
const maxPayments = 100;

/**
 * Everything that is said to a hold, in order. Handlers only put messages in: with handlers that
 * acted by themselves, two activities of one hold ran at once in 67 of 80 holds.
 */
export class Inbox {
  readonly #messages: Incoming[] = [];
  readonly #reports = new Set<string>();
  readonly #payments = new Set<string>();
  #asking = 0;
  #dropped = 0;

  constructor() {
    setHandler(paymentReceived, (signal) => this.#receive(signal));
    setHandler(cancel, (request) => this.#ask({ kind: 'cancel', request }), {
      validator: (request: unknown) => demand(isCancel(request), 'cancel', request),
    });
    setHandler(extend, (request) => this.#ask({ kind: 'extend', request }), {
      validator: (request: unknown) => demand(isExtend(request), 'extend', request),
    });
    setHandler(release, (request) => this.#ask({ kind: 'release', request }), {
      validator: (request: unknown) => demand(isRelease(request), 'release', request),
    });
    // Temporal's own cancel is one more message: the body is shielded from it, so that callers who
    // wait still get their answers and the units go back like on any cancel.
    CancellationScope.current().cancelRequested.catch(() => {
      const request = { reason: 'cancelled in Temporal', actor: 'temporal' };
      this.#messages.push({ kind: 'cancel', request });
    });
  }

  next(): Incoming | undefined {
    return this.#messages.shift();
  }

  get waiting(): number {
    return this.#messages.length;
  }

  /** Callers who wait for an answer of cancel, extend or release, or are about to get it. */
  get asking(): number {
    return this.#asking;
  }

  get payments(): number {
    return this.#payments.size;
  }

  /** Signals that were malformed, repeated, or beyond the limit. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Stores and returns; never throws: an error here would fail the workflow task for ever. */
  #receive(signal: unknown): void {
    const payment = readPayment(signal);
    if (payment === undefined) return this.#drop('malformed payment signal');
    const { provider, paymentId, status } = payment;
    const report = JSON.stringify([provider, paymentId, status]);
    if (this.#reports.has(report)) return this.#drop('repeated payment signal');
    const name = nameOf(payment);
    if (!this.#payments.has(name) && this.#payments.size >= maxPayments)
      return this.#drop(`more than ${maxPayments} payments for one hold`);
    this.#payments.add(name);
    this.#reports.add(report);
    this.#messages.push({ kind: 'payment', payment });
  }

  #drop(why: string): void {
    this.#dropped += 1;
    // A flood of bad signals must not become a flood of lines.
    if (this.#dropped <= 10) log.warn(`${why}: dropped`);
  }

  async #ask<Kind, Request, Answer>(question: Question<Kind, Request, Answer>): Promise<Answer> {
    this.#asking += 1;
    try {
      return await CancellationScope.nonCancellable(async () => {
        this.#messages.push(question as Incoming);
        await condition(() => question.answer !== undefined);
        return question.answer!;
      });
    } finally {
      this.#asking -= 1;
    }
  }
}

/** How a payment is named in notes and compared. */
export function nameOf({ provider, paymentId }: PaymentRef): string {
  return `${provider}/${paymentId}`;
}

/**
 * The signal as a payment, or undefined. Strict on purpose: a value that Postgres refuses would be
 * retried for ever, and meanwhile the hold would not expire.
 */
function readPayment(signal: unknown): Payment | undefined {
  const { provider, paymentId, status, amountMinor, currency, eventId, recorded } =
    fieldsOf<PaymentSignal>(signal);
  const statusGiven = status ?? 'succeeded';
  return isText(provider, 100) &&
    isText(paymentId, 255) &&
    ['succeeded', 'failed', 'refunded'].includes(statusGiven) &&
    Number.isSafeInteger(amountMinor) &&
    amountMinor! >= 0 &&
    typeof currency === 'string' &&
    /^[A-Z]{3}$/.test(currency) &&
    (eventId === undefined || eventId === null || isText(eventId, 255))
    ? {
        provider,
        paymentId,
        status: statusGiven,
        amountMinor: amountMinor!,
        currency,
        eventId: eventId ?? null,
        recorded: recorded === true && statusGiven === 'succeeded',
      }
    : undefined;
}

function isCancel(request: unknown): boolean {
  const { reason, actor } = fieldsOf<CancelRequest>(request);
  return isText(reason, 500) && isText(actor, 255);
}

function isExtend(request: unknown): boolean {
  const { seconds, actor, requestId } = fieldsOf<ExtendRequest>(request);
  return (
    Number.isInteger(seconds) &&
    seconds! >= 1 &&
    seconds! <= 86_400 &&
    isText(actor, 255) &&
    isText(requestId, 300)
  );
}

function isRelease(request: unknown): boolean {
  const { lines, reason, actor, requestId } = fieldsOf<ReleaseRequest>(request);
  return areLines(lines) && isText(reason, 500) && isText(actor, 255) && isText(requestId, 300);
}

/** Products with quantities that Postgres can add up. */
export function areLines(lines: unknown): boolean {
  return (
    Array.isArray(lines) &&
    lines.length >= 1 &&
    lines.length <= 50 &&
    lines.every((line: unknown) => {
      const { sku, quantity } = fieldsOf<Line>(line);
      return (
        isText(sku, 64) && Number.isInteger(quantity) && quantity! >= 1 && quantity! <= 2 ** 31 - 1
      );
    })
  );
}

/** Whatever was sent, as something whose fields may be looked at. */
export function fieldsOf<T>(value: unknown): Partial<T> {
  return typeof value === 'object' && value !== null ? value : {};
}

/** Something to read, of a bounded length, that Postgres can store: no NUL, no half of a pair. */
export function isText(value: unknown, maxLength: number): value is string {
  return (
    typeof value === 'string' &&
    value.length <= maxLength &&
    /\S/.test(value) &&
    !/[\0\p{Surrogate}]/u.test(value)
  );
}

/** Refuses an update before it is accepted; its caller gets the sentence. */
export function demand(ok: boolean, what: string, request: unknown): void {
  if (!ok)
    throw new TypeError(`malformed ${what}: ${String(JSON.stringify(request)).slice(0, 200)}`);
}
