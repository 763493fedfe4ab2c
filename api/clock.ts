/** A request is answered by 5 s; what this service does itself ends before that. */
export const answerWithinMs = 4700;

/** The time since a request arrived: every wait for it is cut to what is left. */
export class Clock {
  readonly #arrivedAt: number;

  /** @param spentMs of our own time, before this clock was made */
  constructor(spentMs = 0) {
    this.#arrivedAt = performance.now() - spentMs;
  }

  get passedMs(): number {
    return performance.now() - this.#arrivedAt;
  }

  /** What is left until `endMs` after the arrival, at most `mostMs`; at least 1, since 0 means "for ever" to many. */
  left(endMs: number = answerWithinMs, mostMs = Infinity): number {
    return Math.max(1, Math.round(Math.min(endMs - this.passedMs, mostMs)));
  }

  /** Waits until `ms` after the arrival. */
  async until(ms: number): Promise<void> {
    const rest = ms - this.passedMs;
    if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
  }
}
