import type { Line, Shortfall } from '../db/values.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { Pace } from './pace.js';
import type { Reading, Readings } from './readings.js';
import { refusalProblem } from './refusals.js';

/** After its request's arrival: a claim that begins much later would hardly meet its deadline of 3.5 s. */
const waitUntilMs = 1500;
/** When all before the gate was slow, somebody else's claim still gets so long to come back. */
const waitAtLeastMs = 300;
/** Requests that wait for units, some KB each: one read tells all of them what a claim has left over. */
const mostWaiting = 1000;
/**
 * Nobody is sent away for longer, however much is left to sell. By 10 s all of a rush came back in the middle of its
 * sale, and answering them took the engine's time.
 */
const mostRetrySeconds = 20;
const lookAgainMs = 50;

/** A claim that was let through. */
export interface Passed {
  /** Once, when it is known what became of it; `decided` when the engine has answered. */
  ended(decided: boolean): void;
}

interface Waiter {
  lines: Line[];
  since: number;
  pass: (passed: Passed) => void;
  refuse: (problem: Problem) => void;
}

/**
 * In front of the workflows of this process (R14). It may only say no, and only when no is true: what a
 * claim could take is read from Postgres after the request has come. It promises nothing; the claim in
 * the workflow decides (R12).
 *
 * A checkout is let through while there are more sellable units than the claims under way may take. When
 * these may take all of them it waits for one to come back: a thousand buyers of one unit cost one
 * workflow and one read. Beside what is under way here it counts nothing by itself. So it opens again
 * after a release, an expiry, a failed claim or a crash, and several processes need not know of one
 * another: at worst they let more claims through than can win.
 */
export class Gate {
  readonly #readings: Readings;
  readonly #pace: Pace;
  readonly #waiters = new Set<Waiter>();
  /** Units that those who wait want, by product. */
  readonly #wanted = new Units();
  /** Claims under way, and some that have ended: a reading knows of those that ended before it began. */
  readonly #claims = new Set<{ lines: Line[]; endedAt: number }>();
  #nextTurn = 0;
  #looking = false;
  #lookAgain = false;

  /** @param most claims under way, whatever the engine can do */
  constructor(readings: Readings, most: number) {
    this.#readings = readings;
    this.#pace = new Pace(most);
  }

  /** Claims under way, how many may be, who waits, and claims that are counted beside a reading. */
  get state(): { running: number; limit: number; waiting: number; counted: number } {
    const { running, limit } = this.#pace;
    return { running, limit, waiting: this.#waiters.size, counted: this.#claims.size };
  }

  /**
   * Resolves when this checkout may start its workflow.
   * @param lines what it wants, not refused by `refuseShort`; empty when its units do not matter
   * @throws Problem INSUFFICIENT_STOCK, which is not remembered and rests on a later reading: its own key may have
   *   won since; SALE_BUSY 1.5 s after the arrival, or at once when to wait would be in vain
   */
  async pass(lines: Line[], reading: Reading, clock: Clock): Promise<Passed> {
    this.#forgetBefore(reading);
    const enoughForAll = this.#fits(lines, reading, this.#wanted);
    const waitedFor = lines.some(({ sku }) => this.#wanted.of(sku) > 0);
    if (enoughForAll && !waitedFor && !this.#pace.full) return this.#let(lines);
    // With enough for all who wait, only the engine is behind: in a second it finishes as many claims as may be under
    // way, so whoever comes after as many others waits in vain.
    const most = enoughForAll ? Math.min(this.#pace.limit, mostWaiting) : mostWaiting;
    if (this.#waiters.size >= most) throw this.#busy(lines, reading);
    return this.#wait(lines, reading, clock);
  }

  #let(lines: Line[]): Passed {
    const claim = { lines, endedAt: Infinity };
    this.#claims.add(claim);
    this.#pace.began();
    return {
      ended: (decided) => {
        claim.endedAt = performance.now();
        this.#pace.ended(decided);
        void this.#look();
      },
    };
  }

  #wait(lines: Line[], reading: Reading, clock: Clock): Promise<Passed> {
    return new Promise((resolve, reject) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiters.delete(waiter);
        this.#wanted.add(lines, -1);
      };
      const waiter: Waiter = {
        lines,
        since: performance.now(),
        pass: (passed) => {
          done();
          resolve(passed);
        },
        refuse: (problem) => {
          done();
          reject(problem);
        },
      };
      const timer = setTimeout(
        () => waiter.refuse(this.#busy(lines, reading)),
        Math.max(clock.left(waitUntilMs), waitAtLeastMs),
      );
      this.#waiters.add(waiter);
      this.#wanted.add(lines, 1);
      // The claims that it waits for may have ended since its reading.
      void this.#look();
    });
  }

  /** Reads again for those who wait whenever a claim has ended, and lets through or refuses whom it can. */
  async #look(): Promise<void> {
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    while (this.#lookAgain && this.#waiters.size > 0) {
      this.#lookAgain = false;
      const lines = this.#wanted.skus.map((sku) => ({ sku, quantity: 1 }));
      const wanted = { holdId: null, buyerId: null, lines };
      const reading = await this.#readings.read(wanted, waitUntilMs).catch(() => undefined);
      if (reading !== undefined) this.#decide(reading);
      // Postgres is away: it is asked again until those who wait have heard SALE_BUSY.
      else this.#lookAgain = await new Promise((again) => setTimeout(again, lookAgainMs, true));
    }
    this.#looking = false;
  }

  /** In the order of arrival; who wants other products does not wait behind those who must. */
  #decide(reading: Reading): void {
    this.#forgetBefore(reading);
    const before = new Units();
    for (const waiter of this.#waiters) {
      // Came after this read had begun: the next one is for it.
      if (waiter.since > reading.beganAt) {
        this.#lookAgain = true;
        return;
      }
      const shortfalls = shortOf(waiter.lines, reading);
      if (shortfalls.length > 0) waiter.refuse(insufficient(shortfalls));
      else if (!this.#pace.full && this.#fits(waiter.lines, reading, before))
        waiter.pass(this.#let(waiter.lines));
      else before.add(waiter.lines, 1);
    }
  }

  /** Whether so many units are left, beyond what claims under way and those before it may take. */
  #fits(lines: Line[], reading: Reading, before: Units): boolean {
    const taken = new Units();
    for (const { lines, endedAt } of this.#claims)
      if (endedAt >= reading.beganAt) taken.add(lines, 1);
    return lines.every(
      ({ sku, quantity }) => sellable(sku, reading) - taken.of(sku) - before.of(sku) >= quantity,
    );
  }

  #forgetBefore({ beganAt }: Reading): void {
    for (const claim of this.#claims) if (claim.endedAt < beganAt) this.#claims.delete(claim);
  }

  /**
   * To come again when it is one's turn, by the engine's pace, after those who were sent away before; but no later than
   * when what is left will have been decided.
   */
  #busy(lines: Line[], reading: Reading): Problem {
    const now = performance.now();
    // No further ahead than anybody is sent: else a long rush would be heard of for minutes after it.
    this.#nextTurn = Math.min(
      Math.max(this.#nextTurn, now) + 1000 / this.#pace.perSecond,
      now + mostRetrySeconds * 1000,
    );
    const left = Math.min(...lines.map(({ sku }) => sellable(sku, reading)));
    const most = Math.min(left / this.#pace.perSecond, mostRetrySeconds);
    const seconds = Math.min((this.#nextTurn - now) / 1000, most);
    return new Problem(
      'SALE_BUSY',
      `${this.#pace.running} checkouts are being decided, and ${this.#waiters.size} wait.`,
      { retryAfterSeconds: Math.max(Math.ceil(seconds), 1) },
    );
  }
}

/** @throws Problem INSUFFICIENT_STOCK, which is not remembered: a claim could not take these lines */
export function refuseShort(lines: Line[], reading: Reading): void {
  const shortfalls = shortOf(lines, reading);
  if (shortfalls.length > 0) throw insufficient(shortfalls);
}

/** What of these lines is more than a claim could take; of the known products only. */
function shortOf(lines: Line[], reading: Reading): Shortfall[] {
  return lines
    .map(({ sku, quantity }) => ({ sku, requested: quantity, available: sellable(sku, reading) }))
    .filter(({ requested, available }) => available < requested);
}

function insufficient(shortfalls: Shortfall[]): Problem {
  return refusalProblem({ outcome: 'INSUFFICIENT_STOCK', shortfalls });
}

/** Units that a claim could take; without end when there are more than were counted. */
function sellable(sku: string, { products }: Reading): number {
  const product = products.get(sku);
  return product === undefined || product.more ? Infinity : product.sellable;
}

/** Sums of units by product. */
class Units {
  readonly #sums = new Map<string, number>();

  get skus(): string[] {
    return [...this.#sums.keys()];
  }

  of(sku: string): number {
    return this.#sums.get(sku) ?? 0;
  }

  add(lines: Line[], sign: 1 | -1): void {
    for (const { sku, quantity } of lines) {
      const sum = this.of(sku) + sign * quantity;
      if (sum === 0) this.#sums.delete(sku);
      else this.#sums.set(sku, sum);
    }
  }
}
