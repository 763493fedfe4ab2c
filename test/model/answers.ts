import type { Books, Hold, Payment } from './books.js';
import type { Answer, Call } from './lane.js';
import type { Moments } from './refusals.js';
import type { World } from './world.js';

type Of<What extends Call['ask']['what']> = Call & {
  ask: Extract<Call['ask'], { what: What }>;
  answer: Answer;
};

/** Holds every answer that a caller saw against what the ledger says, and against the others. */
export function checkAnswers(
  world: World,
  books: Books,
  calls: Call[],
  moments: Moments,
): string[] {
  const check = new Answers(world, books, calls, moments);
  for (const call of calls) {
    if (call.fault) check.wrong(call, `fault ${call.fault}`);
  }
  check.claims();
  check.payments();
  check.confirms();
  check.closings();
  check.extensions();
  check.stock();
  return check.violations;
}

class Answers {
  readonly violations: string[] = [];
  readonly #world: World;
  readonly #books: Books;
  readonly #calls: Call[];
  readonly #moments: Moments;
  readonly #holds: Map<string, Hold>;

  constructor(world: World, books: Books, calls: Call[], moments: Moments) {
    this.#world = world;
    this.#books = books;
    this.#calls = calls;
    this.#moments = moments;
    this.#holds = new Map(books.holds.map((hold) => [hold.id, hold]));
  }

  wrong(call: Call, why: string): void {
    const { ask, answer, began, ended } = call;
    this.violations.push(
      `${ask.what} ${answer?.outcome ?? ''}: ${why}: ${JSON.stringify({ ask, answer, began, ended })}`,
    );
  }

  claims(): void {
    const byHold = group(this.#answered('claim'), ({ ask }) => ask.request.holdId);
    for (const [id, calls] of byHold) {
      const hold = this.#holds.get(id);
      const own = calls.filter(({ ask }) => ask.request.requestHash === 'hash');
      for (const call of calls) {
        if (call.ask.request.requestHash !== 'hash' && call.answer.outcome !== 'KEY_REUSED') {
          this.wrong(call, 'another body for a key that was used');
        }
      }
      const held = own.filter(({ answer }) => answer.outcome === 'HELD');
      if (held.length !== (hold && hold.status !== 'REJECTED' ? 1 : 0)) {
        this.violations.push(
          `hold ${id} is ${hold?.status ?? 'not there'}, and ${held.length} claims were answered HELD`,
        );
      }
      for (const call of own) this.#claim(call, hold);
      // A refusal was decided by the call that was through before its commit; a repeat that waited for
      // it began too late to judge it by.
      const refused = own.filter(({ answer }) =>
        /^(INSUFFICIENT_STOCK|BUYER_LIMIT)$/.test(answer.outcome),
      );
      const [decided] = refused.sort((a, b) => a.ended - b.ended);
      if (decided && hold) this.#refusal(decided, hold);
    }
  }

  #claim(call: Of<'claim'>, hold: Hold | undefined): void {
    const { answer, ask, began, ended } = call;
    const { request } = ask;
    const deadline = Date.parse(request.claimDeadline) * 1000;
    // What the first of the two took is its own for a second of its clock, on a slow machine not longer.
    const takenUntil = this.#holds.get(this.#world.holdId(9001))?.endsAt ?? Infinity;
    if (ask.drain && (request.idempotencyKey === 'all' || ended < takenUntil)) {
      const expected = request.idempotencyKey === 'all' ? 'HELD' : 'INSUFFICIENT_STOCK';
      if (answer.outcome !== expected)
        this.wrong(call, `with nobody else about it must be ${expected}`);
    }
    switch (answer.outcome) {
      case 'HELD':
        if (!hold || hold.createdAt < began || hold.createdAt > ended)
          this.wrong(call, `the hold was made at ${hold?.createdAt}`);
        else {
          if (hold.createdAt >= deadline) this.wrong(call, 'taken after the deadline');
          const seconds =
            request.holdSeconds ??
            Math.min(...request.lines.map(({ sku }) => this.#product(sku).holdSeconds));
          const endsAt = Date.parse(answer['expiresAt'] as string);
          if (endsAt !== Math.floor((hold.createdAt + seconds * 1_000_000) / 1000))
            this.wrong(call, `its end is not ${seconds} s after ${hold.createdAt}`);
          const policies = request.lines.map(({ sku }) => this.#product(sku).latePayment);
          const strictest = (['refund', 'review', 'accept_if_available'] as const).find((policy) =>
            policies.includes(policy),
          );
          if (hold.policy !== strictest) this.wrong(call, `its late policy is ${hold.policy}`);
          const lines = [...request.lines]
            .sort((a, b) => (a.sku < b.sku ? -1 : 1))
            .map(({ sku, quantity }) => `${quantity} ${sku}`);
          if (String(lines) !== String(hold.lines.map(({ sku, quantity }) => `${quantity} ${sku}`)))
            this.wrong(call, 'its lines are others');
          for (const { sku, quantity } of request.lines) {
            const { limit } = this.#product(sku);
            const change = this.#moments.change(`claim ${hold.id}`);
            if (limit === null || !change) continue;
            const before = this.#moments.certainlyBought(change, ended, hold.buyer, sku);
            if (before + quantity > limit) this.wrong(call, `the buyer had ${before} of ${limit}`);
          }
        }
        return;
      case 'ALREADY': {
        const possible = this.#moments.possible(request.holdId, began, ended);
        if (!possible.has(answer['status'] as string))
          this.wrong(call, `it could be ${[...possible].join(' or ')}`);
        return;
      }
      case 'CLAIM_TOO_LATE':
        // lock_timeout counts whole milliseconds, rounded down: such a wait ends up to 1 ms early.
        if (ended < deadline - 1000) this.wrong(call, `${deadline - ended} us before its deadline`);
        if (!this.#moments.possible(request.holdId, began, ended).has('none'))
          this.wrong(call, 'the row was there before');
        return;
      case 'INSUFFICIENT_STOCK':
      case 'BUYER_LIMIT': {
        const { requestHash, ...refusal } = answer;
        if (requestHash !== 'hash' || !hold?.refusal || !same(hold.refusal, refusal))
          this.wrong(call, `the row says ${hold?.status} ${JSON.stringify(hold?.refusal)}`);
        return;
      }
      default:
        this.wrong(call, 'no such answer');
    }
  }

  #refusal(call: Of<'claim'>, hold: Hold): void {
    const { answer, ask, began, ended } = call;
    if (hold.createdAt < began || hold.createdAt > ended)
      this.wrong(call, 'the row is of another moment');
    if (answer.outcome === 'BUYER_LIMIT') {
      const sku = answer['sku'] as string;
      const quantity = ask.request.lines.find((line) => line.sku === sku)?.quantity ?? 0;
      if (
        answer['limit'] !== this.#product(sku).limit ||
        !this.#moments.couldBeOverLimit(call, hold.buyer, sku, quantity)
      ) {
        this.wrong(call, 'FALSE REFUSAL: the limit had room during the whole call');
      }
      return;
    }
    const shortfalls = answer['shortfalls'] as {
      sku: string;
      requested: number;
      available: number;
    }[];
    const lines = shortfalls.map(({ sku, requested, available }) => ({
      sku,
      quantity: requested,
      shown: available,
    }));
    if (
      lines.length === 0 ||
      shortfalls.some(({ requested, available }) => available >= requested || available < 0)
    ) {
      this.wrong(call, 'its shortfalls are none');
    }
    if (!this.#moments.couldBeShort(call, lines))
      this.wrong(call, 'FALSE REFUSAL: enough was free during the whole call');
  }

  /** What was in time is never given away, and what was late follows the policy. */
  payments(): void {
    for (const payment of this.#books.payments) {
      const hold = this.#holds.get(payment.hold)!;
      const say = (why: string) =>
        this.violations.push(
          `payment ${JSON.stringify(payment)} of ${JSON.stringify(hold)}: ${why}`,
        );
      const owns = hold.status === 'CONFIRMED' && hold.payment === payment.id;
      if (payment.status === 'failed') {
        if (payment.settlement || owns) say('it failed');
        continue;
      }
      if (
        payment.inTime &&
        ['EXPIRED', 'CANCELLED', 'REJECTED'].includes(hold.status) &&
        payment.status === 'succeeded' &&
        payment.reason !== 'MISMATCH'
      ) {
        say('PAID IN TIME, but given away');
      }
      if (payment.inTime && (hold.endsAt === null || payment.receivedAt! >= hold.endsAt))
        say('not in time at all');
      if (payment.status === 'succeeded' && payment.settlement === null)
        say('left without a settlement');
      this.#settlement(payment, hold, owns, say);
    }
    for (const call of this.#answered('pay')) this.#recorded(call);
    for (const hold of this.#books.holds) {
      const accepted = this.#books.payments.filter(
        (payment) => payment.hold === hold.id && hold.payment === payment.id,
      );
      if (accepted.length !== (hold.status === 'CONFIRMED' ? 1 : 0))
        this.violations.push(
          `hold ${hold.id} is ${hold.status} with ${accepted.length} payments of its own`,
        );
    }
  }

  #settlement(payment: Payment, hold: Hold, owns: boolean, say: (why: string) => void): void {
    const { settlement, reason, status, inTime } = payment;
    const got = `${settlement}${reason ? ` ${reason}` : ''}`;
    if (status === 'refunded') {
      if (owns ? got !== 'NEEDS_REVIEW RETURNED' : settlement !== 'REFUNDED')
        say('refunded by the provider');
      return;
    }
    if (owns) {
      if (got !== (inTime ? 'APPLIED' : 'ACCEPTED_LATE')) say('it owns the units');
      if (!inTime && hold.policy !== 'accept_if_available')
        say('late, and the policy does not accept it');
      return;
    }
    const allowed = ['REFUND_DUE MISMATCH', 'REFUND_DUE SURPLUS'];
    if (!inTime) allowed.push('REFUND_DUE LATE');
    if (!inTime && hold.policy === 'review') allowed.push('NEEDS_REVIEW LATE');
    if (!allowed.includes(got)) say(`settled ${got}`);
    if (got === 'REFUND_DUE SURPLUS' && hold.status !== 'CONFIRMED') say('surplus of nothing');
    if (
      (got === 'REFUND_DUE MISMATCH') !==
      (hold.totalMinor !== null && hold.totalMinor !== payment.amountMinor)
    )
      say(`the total is ${hold.totalMinor}`);
    // Late acceptance must not be refused while there is room.
    if (
      got === 'REFUND_DUE LATE' &&
      hold.policy === 'accept_if_available' &&
      hold.status === 'EXPIRED'
    ) {
      const refused = this.#answered('confirm').filter(
        ({ ask, answer }) =>
          ask.payment.paymentId === payment.id &&
          ask.holdId === hold.id &&
          answer.outcome === 'TOO_LATE',
      );
      const justified = refused.some((call) =>
        hold.lines.some(
          ({ sku, quantity }) =>
            this.#moments.couldBeShort(call, [{ sku, quantity }], false) ||
            this.#moments.couldBeOverLimit(call, hold.buyer, sku, quantity, false),
        ),
      );
      if (!justified) say('FALSE REFUSAL: late, but there was room during the whole call');
    }
  }

  #recorded(call: Of<'pay'>): void {
    const { answer, ask, began, ended } = call;
    const payment = this.#books.payments.find(({ id }) => id === ask.event.paymentId);
    const possible = this.#moments.possible(ask.event.holdId!, began, ended);
    if (answer.outcome === 'UNMATCHED') {
      if (!possible.has('none')) this.wrong(call, 'the hold is there');
      return;
    }
    if (answer.outcome === 'OTHER_HOLD') {
      if (!payment || payment.hold === ask.event.holdId) this.wrong(call, 'it is of this hold');
      return;
    }
    if (!payment || payment.hold !== ask.event.holdId) return this.wrong(call, 'no such payment');
    if (answer['inTime'] !== null && answer['inTime'] !== payment.inTime)
      this.wrong(call, `decided again: ${payment.inTime}`);
    if (answer.outcome !== 'RECORDED' || ask.event.status !== 'succeeded') return;
    if (payment.receivedAt! < began || payment.receivedAt! > ended)
      this.wrong(call, `stamped at ${payment.receivedAt}`);
    const hold = this.#holds.get(payment.hold)!;
    if (!payment.inTime && hold.endsAt !== null) {
      const closedLater = this.#moments.firstClosedAt(hold.id) > ended;
      if (closedLater && payment.receivedAt! < hold.endsAt) this.wrong(call, 'it was in time');
      if (closedLater && call.mustBeInTime)
        this.wrong(call, 'it waited for the row before the end, so it was in time');
    }
  }

  confirms(): void {
    for (const [key, calls] of group(
      this.#answered('confirm'),
      ({ ask }) => `${ask.holdId} ${ask.payment.paymentId}`,
    )) {
      const { holdId, payment: ref } = calls[0]!.ask;
      const hold = this.#holds.get(holdId);
      const payment = this.#books.payments.find(
        ({ id, hold }) => id === ref.paymentId && hold === holdId,
      );
      const owns = hold?.status === 'CONFIRMED' && hold.payment === ref.paymentId;
      const confirmed = calls.filter(({ answer }) => answer.outcome === 'CONFIRMED');
      if (confirmed.length !== (owns ? 1 : 0))
        this.violations.push(
          `${key} was answered CONFIRMED ${confirmed.length} times; the hold is ${hold?.status} by ${hold?.payment}`,
        );
      for (const call of calls) {
        const { answer } = call;
        switch (answer.outcome) {
          case 'CONFIRMED':
            if (answer['late'] === payment?.inTime) this.wrong(call, 'late or not');
            if (answer['late'] && this.#pendingBefore(call, holdId))
              this.wrong(call, 'it overtook a payment in time that was pending');
            this.#limitAtConfirm(call, hold);
            break;
          case 'ALREADY_CONFIRMED':
            if (!owns) this.wrong(call, 'it is not');
            break;
          case 'SURPLUS':
          case 'MISMATCH':
            if (payment?.reason !== answer.outcome) this.wrong(call, `settled ${payment?.reason}`);
            break;
          case 'TOO_LATE':
            if (
              payment?.reason !== answer['reason'] ||
              !(payment?.settlement === answer['settlement'] || payment?.settlement === 'REFUNDED')
            )
              this.wrong(call, `settled ${payment?.settlement} ${payment?.reason}`);
            break;
          case 'PAYMENT_PENDING': {
            const other = this.#books.payments.find(
              ({ id }) => id === (answer['payment'] as { paymentId: string }).paymentId,
            );
            if (!other?.inTime || other.hold !== holdId || payment?.inTime)
              this.wrong(call, 'nothing is pending');
            break;
          }
          case 'MISSING':
            // Only while it has not been recorded as succeeded, or never was.
            if (
              payment &&
              payment.status !== 'failed' &&
              !this.#answered('pay').every(
                ({ ask, known }) =>
                  ask.event.paymentId !== ref.paymentId ||
                  ask.event.status !== 'succeeded' ||
                  known >= call.began,
              )
            )
              this.wrong(call, 'it was recorded');
            break;
          default:
            this.wrong(call, 'no such answer');
        }
      }
    }
  }

  /** A payment in time that was recorded for certain before this confirm began, fits, and was not sent back. */
  #pendingBefore(call: Of<'confirm'>, holdId: string): boolean {
    return this.#books.payments.some(
      ({ id, hold, inTime, status, reason }) =>
        hold === holdId &&
        inTime &&
        status === 'succeeded' &&
        reason !== 'MISMATCH' &&
        this.#answered('pay').some(
          ({ ask, answer, known }) =>
            ask.event.paymentId === id && answer.outcome === 'RECORDED' && known < call.began,
        ),
    );
  }

  #limitAtConfirm(call: Of<'confirm'>, hold: Hold | undefined): void {
    const change = hold && this.#moments.change(`late ${hold.id}`);
    if (!change) return;
    for (const { sku, quantity } of hold.lines) {
      const { limit } = this.#product(sku);
      if (limit === null) continue;
      const before = this.#moments.certainlyBought(change, call.ended, hold.buyer, sku);
      if (before + quantity > limit) this.wrong(call, `the buyer had ${before} of ${limit}`);
    }
  }

  closings(): void {
    const calls = [...this.#answered('expire'), ...this.#answered('cancel')];
    for (const [id, mine] of group(calls, ({ ask }) => ask.holdId)) {
      const hold = this.#holds.get(id);
      const actor = this.#moments.change(`close ${id}`)?.movements[0]?.actor;
      const times = (outcome: string) =>
        mine.filter(({ answer }) => answer.outcome === outcome).length;
      if (times('EXPIRED') !== (actor === 'timer' ? 1 : 0))
        this.violations.push(
          `hold ${id} was answered EXPIRED ${times('EXPIRED')} times; closed by ${actor}`,
        );
      if (times('CANCELLED') !== (actor === 'buyer' ? 1 : 0))
        this.violations.push(
          `hold ${id} was answered CANCELLED ${times('CANCELLED')} times; closed by ${actor}`,
        );
      for (const call of mine) {
        const { answer, began, ended } = call;
        const possible = this.#moments.possible(id, began, ended);
        switch (answer.outcome) {
          case 'EXPIRED':
          case 'CANCELLED':
            break;
          case 'ALREADY':
            if (answer['status'] === 'HELD' || !possible.has(answer['status'] as string))
              this.wrong(call, `it could be ${[...possible].join(' or ')}`);
            break;
          case 'NOT_DUE':
            if (
              call.ask.what !== 'expire' ||
              !possible.has('HELD') ||
              began >= hold!.endsAt! ||
              (answer['remainingMs'] as number) < 1
            )
              this.wrong(call, 'it was due');
            break;
          case 'PAYMENT_PENDING': {
            const payment = this.#books.payments.find(
              ({ id }) => id === (answer['payment'] as { paymentId: string }).paymentId,
            );
            if (
              !payment?.inTime ||
              payment.hold !== id ||
              payment.receivedAt! > ended ||
              !possible.has('HELD')
            )
              this.wrong(call, 'nothing is pending');
            break;
          }
          case 'MISSING':
            if (!possible.has('none')) this.wrong(call, 'it is there');
            break;
          default:
            this.wrong(call, 'no such answer');
        }
      }
    }
  }

  extensions(): void {
    for (const [id, calls] of group(this.#answered('extend'), ({ ask }) => ask.holdId)) {
      const hold = this.#holds.get(id);
      const kept = this.#books.requests.filter(({ scope }) => scope === `hold ${id}`);
      for (const call of calls) {
        const { answer, began, ended, ask } = call;
        const possible = this.#moments.possible(id, began, ended);
        const known = kept.find((request) => request.id === ask.requestId);
        switch (answer.outcome) {
          case 'EXTENDED':
            if (
              known?.answer.outcome !== 'EXTENDED' ||
              known.answer['extensions'] !== answer['extensions']
            )
              this.wrong(call, `kept ${JSON.stringify(known)}`);
            break;
          case 'LIMIT':
            if (known && !same(known.answer, answer))
              this.wrong(call, `kept ${JSON.stringify(known)}`);
            break;
          case 'ALREADY':
            if (answer['status'] !== 'REJECTED' && !possible.has(answer['status'] as string))
              this.wrong(call, `it could be ${[...possible].join(' or ')}`);
            break;
          case 'EXPIRED':
            if (!possible.has('HELD') || hold!.endsAt! > ended)
              this.wrong(call, 'it was not overdue');
            break;
          case 'MISSING':
            if (!possible.has('none')) this.wrong(call, 'it is there');
            break;
          default:
            this.wrong(call, 'no such answer');
        }
      }
    }
    for (const hold of this.#books.holds) {
      if (hold.endsAt === null) continue;
      const moves = this.#books.requests
        .filter(({ scope, answer }) => scope === `hold ${hold.id}` && answer.outcome === 'EXTENDED')
        .sort((a, b) => (a.answer['extensions'] as number) - (b.answer['extensions'] as number));
      const claimed = this.#calls.find(
        ({ ask, answer }) =>
          ask.what === 'claim' && ask.request.holdId === hold.id && answer?.outcome === 'HELD',
      );
      if (claimed?.ask.what !== 'claim') continue;
      const { request } = claimed.ask;
      const of = request.lines.map(({ sku }) => this.#product(sku));
      let end =
        hold.createdAt +
        (request.holdSeconds ?? Math.min(...of.map(({ holdSeconds }) => holdSeconds))) * 1_000_000;
      for (const move of moves) {
        const asked = this.#answered('extend').find(
          ({ ask }) => ask.holdId === hold.id && ask.requestId === move.id,
        );
        if (move.at >= end)
          this.violations.push(`hold ${hold.id} was extended at ${move.at}, after its end ${end}`);
        end += (asked?.ask.seconds ?? 0) * 1_000_000;
      }
      const most =
        hold.createdAt + Math.min(...of.map(({ maxHoldSeconds }) => maxHoldSeconds)) * 1_000_000;
      if (hold.endsAt !== end || hold.extensions !== moves.length)
        this.violations.push(
          `hold ${hold.id} ends at ${hold.endsAt} after ${hold.extensions} extensions; asked for were ${moves.length}, to ${end}`,
        );
      if (
        moves.length > Math.min(...of.map(({ maxExtensions }) => maxExtensions)) ||
        (moves.length > 0 && end > most)
      )
        this.violations.push(`hold ${hold.id} was extended too far`);
    }
  }

  stock(): void {
    for (const [key, calls] of group(
      this.#answered('stock'),
      ({ ask }) => `${ask.sku} ${ask.bin} ${ask.requestId}`,
    )) {
      const { sku, bin, requestId, delta } = calls[0]!.ask;
      const { id } = this.#books.bins.find((row) => row.sku === sku && row.code === bin)!;
      const movements = this.#books.movements.filter(
        (movement) => movement.bin === id && movement.request === requestId,
      );
      const first = calls[0]!.answer;
      if (calls.some(({ answer }) => !same(answer, first)))
        this.violations.push(`${key}: repeats answered otherwise`);
      if (movements.length !== (first.outcome === 'DONE' ? 1 : 0))
        this.violations.push(`${key}: ${first.outcome} with ${movements.length} movements`);
      if (first.outcome === 'INSUFFICIENT_STOCK') {
        if ((first['available'] as number) + delta >= 0) this.wrong(calls[0]!, 'there was enough');
      } else if (
        first.outcome !== 'DONE' ||
        movements[0]!.version !== first['version'] ||
        movements[0]!.to[0] - movements[0]!.from[0] !== delta
      ) {
        this.wrong(calls[0]!, JSON.stringify(movements));
      }
    }
  }

  #answered<What extends Call['ask']['what']>(what: What): Of<What>[] {
    return this.#calls.filter(
      ({ ask, answer }) => ask.what === what && answer !== undefined,
    ) as Of<What>[];
  }

  #product(sku: string) {
    return this.#world.products.find((product) => product.sku === sku)!;
  }
}

function group<T>(list: T[], key: (of: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of list) {
    const name = key(one);
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  return groups;
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

function sorted(of: unknown): unknown {
  if (Array.isArray(of)) return of.map(sorted);
  if (of === null || typeof of !== 'object') return of;
  return Object.fromEntries(
    Object.entries(of)
      .sort()
      .map(([key, value]) => [key, sorted(value)]),
  );
}
