import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import type { Activities } from '../../activities/index.js';
import type { ClaimOutcome, ClaimRequest } from '../../db/claim.js';
import type { ReleaseOutcome } from '../../db/release.js';
import type { ReturnOfSale, ReturnOutcome } from '../../db/returnSale.js';
import type { HoldStatus, Line, PaymentRef, PaymentStatus, Settlement } from '../../db/values.js';
import type { HoldRequest } from '../../workflows/contract.js';

interface Row {
  status: HoldStatus;
  endsAt: number;
  requestHash: string;
  /** Of its one line, as releases leave it. */
  units: number;
  payments: Map<string, Payment>;
}
interface Payment extends PaymentRef {
  status: PaymentStatus;
  inTime: boolean;
  settlement: Settlement | null;
}
export interface Call {
  name: keyof Activities;
  holdId: string;
  /** The type of the workflow that asked. */
  by: string;
}

/**
 * Postgres as the workflow sees it, in memory: named outcomes, decided one call at a time. For tests
 * of the loop; the decisions themselves are tested on the real database.
 */
export class FakeDatabase {
  readonly rows = new Map<string, Row>();
  readonly calls: Call[] = [];
  /** The most activities of one hold that ever ran at once: more than 1 means two actors (H4). */
  mostAtOnce = 0;
  holdMs = 60_000;
  latePolicy: 'refund' | 'review' = 'refund';
  /** What a claim without lines takes. */
  readonly cart: Line[] = [
    { sku: 'SKU-1', quantity: 2 },
    { sku: 'SKU-2', quantity: 1 },
  ];
  /** Each call takes this long, so that other messages can arrive meanwhile. */
  slowMs = 0;
  /** Replaces an answer, or throws; undefined leaves it to the fake. */
  instead: { [Name in keyof Activities]?: (call: number, holdId: string) => unknown } = {};
  readonly #running = new Map<string, number>();

  /** As new, for the next test; what is still running from the last one goes on by itself. */
  reset(): void {
    this.rows.clear();
    this.calls.length = 0;
    this.#running.clear();
    Object.assign(this, {
      mostAtOnce: 0,
      holdMs: 60_000,
      latePolicy: 'refund',
      slowMs: 0,
      instead: {},
    });
  }

  callsOf(name: keyof Activities, holdId?: string, by?: string): number {
    return this.calls.filter(
      (call) =>
        call.name === name &&
        (holdId === undefined || call.holdId === holdId) &&
        (by === undefined || call.by === by),
    ).length;
  }

  namesOf(holdId: string): string[] {
    return this.calls.filter((call) => call.holdId === holdId).map(({ name }) => name);
  }

  activities(): Activities {
    return {
      claim: (request) => this.#call('claim', request.holdId, () => this.#claim(request)),
      confirm: (holdId, payment) =>
        this.#call('confirm', holdId, () => this.#confirm(holdId, payment)),
      expire: (holdId) => this.#call('expire', holdId, () => this.#expire(holdId)),
      cancel: (holdId) => this.#call('cancel', holdId, () => this.#cancel(holdId)),
      extend: (holdId, seconds) =>
        this.#call('extend', holdId, () => this.#extend(holdId, seconds)),
      release: (holdId, { lines }) =>
        this.#call('release', holdId, () => this.#release(holdId, lines)),
      returnSale: (request) =>
        this.#call('returnSale', request.holdId, () => this.#return(request)),
      recordPayment: (event) =>
        this.#call('recordPayment', event.holdId!, () => this.#record(event.holdId!, event)),
      requestRefund: (payment) =>
        this.#call('requestRefund', this.#holdOf(payment), () => this.#requestRefund(payment)),
      sendRefund: (payment) =>
        this.#call('sendRefund', this.#holdOf(payment), () => {
          this.#payment(payment)!.settlement = 'REFUNDED';
          return { state: 'EXECUTED', providerRef: 'r1' } as const;
        }),
      decidePayment: (payment, { decision }) =>
        this.#call('decidePayment', this.#holdOf(payment), () => this.#decide(payment, decision)),
    };
  }

  async #call<T>(name: keyof Activities, holdId: string, decide: () => T): Promise<T> {
    const by = asker();
    this.calls.push({ name, holdId, by });
    const call = this.callsOf(name, holdId);
    // A settlement acts for itself, beside the hold.
    const own = by === 'hold' ? 1 : 0;
    const running = (this.#running.get(holdId) ?? 0) + own;
    this.#running.set(holdId, running);
    this.mostAtOnce = Math.max(this.mostAtOnce, running);
    try {
      if (this.slowMs > 0) await sleep(this.slowMs);
      const other: unknown = await this.instead[name]?.(call, holdId);
      return other === undefined ? decide() : (other as T);
    } finally {
      this.#running.set(holdId, (this.#running.get(holdId) ?? own) - own);
    }
  }

  #claim({ holdId, requestHash, lines }: ClaimRequest): ClaimOutcome {
    const taken = lines === null ? { lines: this.cart } : {};
    const row = this.rows.get(holdId);
    if (row) {
      if (row.requestHash !== requestHash) return { outcome: 'KEY_REUSED' };
      return {
        ...this.#ends(row),
        outcome: 'ALREADY',
        holdId,
        requestHash,
        status: row.status,
        ...taken,
      } as ClaimOutcome;
    }
    const made: Row = {
      status: 'HELD',
      endsAt: Date.now() + this.holdMs,
      requestHash,
      units: 3,
      payments: new Map(),
    };
    this.rows.set(holdId, made);
    return { ...this.#ends(made), outcome: 'HELD', holdId, requestHash, ...taken };
  }

  #record(holdId: string, { provider, paymentId, status }: PaymentRef & { status: PaymentStatus }) {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'UNMATCHED' } as const;
    const name = `${provider}/${paymentId}`;
    const known = row.payments.get(name);
    const payment = known ?? { provider, paymentId, status, inTime: false, settlement: null };
    const steps = { failed: 0, succeeded: 1, refunded: 2 };
    if (!known || steps[status] > steps[payment.status]) {
      payment.status = status;
      payment.inTime = status === 'succeeded' && row.status === 'HELD' && Date.now() < row.endsAt;
    }
    row.payments.set(name, payment);
    return {
      outcome: known ? ('DUPLICATE' as const) : ('RECORDED' as const),
      holdId,
      status: payment.status,
      inTime: payment.inTime,
      settlement: payment.settlement,
      settlementReason: null,
    };
  }

  #confirm(holdId: string, { provider, paymentId }: PaymentRef) {
    const row = this.rows.get(holdId);
    const payment = row?.payments.get(`${provider}/${paymentId}`);
    if (!row || payment?.status !== 'succeeded') return { outcome: 'MISSING' } as const;
    if (payment.settlement === 'APPLIED' || payment.settlement === 'ACCEPTED_LATE')
      return { outcome: 'ALREADY_CONFIRMED' } as const;
    if (payment.settlement !== null && row.status !== 'CONFIRMED') {
      const { settlement } = payment;
      return { outcome: 'TOO_LATE', settlement, reason: 'LATE' } as const;
    }
    if (payment.settlement !== null) return { outcome: 'SURPLUS' } as const;
    if (row.status === 'HELD' && payment.inTime) {
      row.status = 'CONFIRMED';
      payment.settlement = 'APPLIED';
      return { outcome: 'CONFIRMED', late: false } as const;
    }
    payment.settlement = this.latePolicy === 'review' ? 'NEEDS_REVIEW' : 'REFUND_DUE';
    if (row.status === 'CONFIRMED') return { outcome: 'SURPLUS' } as const;
    const { settlement } = payment;
    return { outcome: 'TOO_LATE', settlement, reason: 'LATE' } as const;
  }

  #holdOf(payment: PaymentRef): string {
    const name = `${payment.provider}/${payment.paymentId}`;
    return [...this.rows].find(([, row]) => row.payments.has(name))?.[0] ?? 'none';
  }

  #payment(payment: PaymentRef): Payment | undefined {
    const name = `${payment.provider}/${payment.paymentId}`;
    return this.rows.get(this.#holdOf(payment))?.payments.get(name);
  }

  #requestRefund(payment: PaymentRef) {
    const known = this.#payment(payment);
    if (!known) return { outcome: 'MISSING' } as const;
    const { settlement } = known;
    if (settlement !== 'REFUND_DUE') return { outcome: 'NOT_DUE', settlement } as const;
    const due = { cause: 'settlement', amountMinor: 100, currency: 'EUR' } as const;
    return { outcome: 'REQUESTED', ...due } as const;
  }

  #decide(payment: PaymentRef, decision: 'accept' | 'refund') {
    const known = this.#payment(payment);
    if (!known) return { outcome: 'MISSING' } as const;
    const { settlement } = known;
    if (settlement !== 'NEEDS_REVIEW') return { outcome: 'ALREADY', settlement } as const;
    if (decision === 'accept') {
      known.settlement = 'ACCEPTED_LATE';
      this.rows.get(this.#holdOf(payment))!.status = 'CONFIRMED';
      return { outcome: 'ACCEPTED_LATE' } as const;
    }
    known.settlement = 'REFUND_DUE';
    return { outcome: 'REFUND_DUE' } as const;
  }

  #expire(holdId: string) {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'MISSING' } as const;
    if (row.status !== 'HELD') return { outcome: 'ALREADY', status: row.status } as const;
    const remainingMs = row.endsAt - Date.now();
    if (remainingMs > 0) return { outcome: 'NOT_DUE', remainingMs } as const;
    return this.#unlessPending(row) ?? this.#close(row, 'EXPIRED');
  }

  #cancel(holdId: string) {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'MISSING' } as const;
    if (row.status !== 'HELD') return { outcome: 'ALREADY', status: row.status } as const;
    return this.#unlessPending(row) ?? this.#close(row, 'CANCELLED');
  }

  #extend(holdId: string, seconds: number) {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'MISSING' } as const;
    if (row.status !== 'HELD') return { outcome: 'ALREADY', status: row.status } as const;
    if (row.endsAt <= Date.now()) return { outcome: 'EXPIRED' } as const;
    row.endsAt += seconds * 1000;
    return { ...this.#ends(row), outcome: 'EXTENDED', extensions: 1 } as const;
  }

  /** Of a hold of 3 units of one product. */
  #release(holdId: string, [line]: Line[]): ReleaseOutcome {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'MISSING' };
    if (row.status !== 'HELD') return { outcome: 'ALREADY', status: row.status };
    const pending = this.#unlessPending(row);
    if (pending) return pending;
    const { sku, quantity } = line!;
    const left = (row.units -= quantity);
    if (left > 0) return { outcome: 'RELEASED', status: 'HELD', left: [{ sku, quantity: left }] };
    this.#close(row, 'CANCELLED');
    return { outcome: 'RELEASED', status: 'CANCELLED', left: [] };
  }

  #return({ holdId, requestId, lines, restock }: ReturnOfSale): ReturnOutcome {
    const row = this.rows.get(holdId);
    if (!row) return { outcome: 'MISSING' };
    if (row.status !== 'CONFIRMED') return { outcome: 'NOT_CONFIRMED', status: row.status };
    const { provider, paymentId } = [...row.payments.values()][0]!;
    const money = { amountMinor: 100, currency: 'EUR', cause: `return:${requestId}` };
    const refund = { provider, paymentId, ...money };
    return { outcome: 'RETURNED', lines: lines ?? [], restock, refund, noRefund: null };
  }

  #unlessPending(row: Row) {
    for (const { provider, paymentId, ...payment } of row.payments.values()) {
      if (payment.status === 'succeeded' && payment.inTime && payment.settlement === null)
        return { outcome: 'PAYMENT_PENDING', payment: { provider, paymentId } } as const;
    }
    return undefined;
  }

  #close<Status extends HoldStatus>(row: Row, status: Status) {
    row.status = status;
    return { outcome: status };
  }

  #ends(row: Row) {
    return {
      expiresAt: new Date(row.endsAt).toISOString(),
      remainingMs: Math.max(1, row.endsAt - Date.now()),
    };
  }
}

/** Outside of an activity, in tests that mock them: the hold. */
function asker(): string {
  try {
    return Context.current().info.workflowType ?? 'hold';
  } catch {
    return 'hold';
  }
}

/** A request that claims under a new id. */
export function request(changes: Partial<HoldRequest> = {}): HoldRequest {
  return {
    holdId: randomUUID(),
    buyerId: 'buyer-1',
    idempotencyKey: randomUUID(),
    requestHash: 'hash-1',
    lines: [{ sku: 'SKU-1', quantity: 1 }],
    holdSeconds: null,
    claimDeadline: new Date(Date.now() + 3500).toISOString(),
    order: false,
    metadata: {},
    indexed: true,
    ...changes,
  };
}
