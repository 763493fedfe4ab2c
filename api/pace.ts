/** What the engine should need for a claim when it is busy: 3.5 s are left of it, part of them waited away already. */
const targetMs = 1000;
/**
 * The shortest time that says anything about a rate: claims that were let through together come back together, about a
 * second later. By halves of it the bound swung between 8 and 44 (`flash`).
 */
const windowMs = 1000;
/** Even of an engine that finishes nothing so many are asked, or its return would not be noticed. */
const least = 8;
/**
 * Below this only claims without an answer say that the engine is slow. A rush keeps this process busy, too, and by
 * what it then measured it took ever fewer claims and sent ever more buyers away: 19,500 of 20,000 were undecided.
 */
const leastMeasured = 16;
const first = 32;

/**
 * How many claims may be with the engine: as many as it finishes in a second (Little's law: what is
 * under way is the rate times the time each takes). Measured all the time, and only while the bound is
 * nearly reached: an idle engine's rate says nothing about what it can do. Claims beyond it would only
 * make each other late, and a claim that comes after its deadline is work thrown away.
 */
export class Pace {
  readonly #most: number;
  #limit: number;
  #running = 0;
  /** Since when the bound has been nearly reached, and what was finished since then. */
  #busy: { since: number; finished: number } | undefined;
  #slowedAt = -Infinity;

  /** @param most whatever is measured */
  constructor(most: number) {
    this.#most = most;
    this.#limit = Math.min(first, most);
  }

  /** Claims that may be under way at once. */
  get limit(): number {
    return this.#limit;
  }

  get running(): number {
    return this.#running;
  }

  get full(): boolean {
    return this.#running >= this.#limit;
  }

  /** Claims that the engine finishes in a second, by the last measurement. */
  get perSecond(): number {
    return (this.#limit * 1000) / targetMs;
  }

  began(): void {
    this.#running += 1;
    if (this.#running >= this.#limit * 0.8)
      this.#busy ??= { since: performance.now(), finished: 0 };
  }

  /** One has ended; `decided` when the engine has answered. */
  ended(decided: boolean): void {
    this.#running -= 1;
    if (decided) this.#measure();
    else this.#slowDown();
  }

  #measure(): void {
    if (this.#busy === undefined) return;
    this.#busy.finished += 1;
    const now = performance.now();
    const passed = now - this.#busy.since;
    if (passed >= windowMs) {
      const measured = (this.#busy.finished / passed) * targetMs;
      const lower = Math.max(this.#limit / 2, Math.min(this.#limit, leastMeasured));
      this.#set(Math.min(Math.max(measured, lower), this.#limit * 2));
      this.#busy = { since: now, finished: 0 };
    }
    if (this.#running < this.#limit * 0.5) this.#busy = undefined;
  }

  /** A claim without an answer took 3.5 s and more: there is too much under way, or nobody at work. */
  #slowDown(): void {
    const now = performance.now();
    this.#busy = undefined;
    if (now - this.#slowedAt < targetMs) return;
    this.#slowedAt = now;
    this.#set(this.#limit / 2);
  }

  #set(limit: number): void {
    this.#limit = Math.min(Math.max(Math.round(limit), least), this.#most);
  }
}
