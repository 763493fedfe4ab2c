import { condition } from '@temporalio/workflow';

/** Added to what Postgres says is left: its clock and Temporal's timer round differently. */
const marginMs = 20;
const firstPauseMs = 30_000;
const longestPauseMs = 3_600_000;

/**
 * How long a hold waits for its payment, in workflow time. Only the three answers that carry a
 * remaining time set it (claim, extend, NOT_DUE); no other message restarts it.
 */
export class PaymentWindow {
  #endsAt = 0;
  #pausedUntil = 0;
  #pauseMs = firstPauseMs;

  /** False when there is no such time: `condition` would wait for ever on undefined. */
  set(remainingMs: unknown): boolean {
    if (typeof remainingMs !== 'number' || !Number.isFinite(remainingMs)) return false;
    this.#endsAt = Date.now() + Math.ceil(Math.max(0, remainingMs)) + marginMs;
    return true;
  }

  /** Puts the next look at the clock off, longer each time; the window itself stays as it is. */
  pause(): void {
    if (this.paused) return;
    this.#pausedUntil = Date.now() + this.#pauseMs;
    this.#pauseMs = Math.min(longestPauseMs, 2 * this.#pauseMs);
  }

  get paused(): boolean {
    return Date.now() < this.#pausedUntil;
  }

  get over(): boolean {
    return this.#leftMs <= 0;
  }

  /** Waits for the end of the window, or for something else that comes first. */
  async wait(somethingElse: () => boolean): Promise<void> {
    const summary = this.paused ? 'pause before the next try' : 'payment window';
    await condition(somethingElse, Math.max(1, this.#leftMs), { summary });
  }

  get #leftMs(): number {
    return Math.max(this.#endsAt, this.#pausedUntil) - Date.now();
  }
}
