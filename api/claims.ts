import { Problem } from './errors.js';
import type { Decision } from './askForClaim.js';
import type { Checkout } from './canonical.js';

/** The checkouts that this process is deciding: a repeat of a key that is being decided joins it. */
export class Claims {
  readonly #running = new Map<string, { requestHash: string; decision: Promise<Decision> }>();

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
    const decision = claim();
    this.#running.set(holdId, { requestHash, decision });
    try {
      return { decision: await decision, joined: false };
    } finally {
      this.#running.delete(holdId);
    }
  }
}
