import { Problem } from './errors.js';
import type { Decision } from './askForClaim.js';
import type { Checkout } from './canonical.js';

/**
 * The claims that this process is waiting for. Bounded to about what the engine finishes in 2 s:
 * beyond it a burst would only get late claims, so it is told SALE_BUSY at once, and nothing was
 * asked for. A repeat of a key that is being decided joins it and does not count.
 */
export class Claims {
  readonly #most: number;
  readonly #running = new Map<string, { requestHash: string; decision: Promise<Decision> }>();

  constructor(most: number) {
    this.#most = most;
  }

  get running(): number {
    return this.#running.size;
  }

  async decide(
    { holdId, requestHash }: Checkout,
    claim: () => Promise<Decision>,
  ): Promise<{ decision: Decision; joined: boolean }> {
    const first = this.#running.get(holdId);
    if (first !== undefined) {
      if (first.requestHash !== requestHash) {
        throw new Problem(
          'IDEMPOTENCY_KEY_REUSED',
          'This buyer is using this Idempotency-Key for a request with another body right now.',
        );
      }
      return { decision: await first.decision, joined: true };
    }
    if (this.#running.size >= this.#most) {
      throw new Problem('SALE_BUSY', `${this.#running.size} checkouts are being decided.`);
    }
    const decision = claim();
    this.#running.set(holdId, { requestHash, decision });
    try {
      return { decision: await decision, joined: false };
    } finally {
      this.#running.delete(holdId);
    }
  }
}
