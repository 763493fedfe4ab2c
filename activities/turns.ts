import type { Activities } from './index.js';

/** Turns are given by the tenth of a second. */
const slotMs = 100;
/** The pace of claims is that of the last second. */
const paceMs = 1000;
const sweptEveryMs = 10_000;

/**
 * When the workflows of holds look at their end. Thousands that end in the same second would all ask Temporal for
 * their task at once, and claims and payments would wait behind them (F13, F35). The units can be sold again from the
 * end on without their help (R07), so a worker gives them turns: the first ones of each moment are on time, the
 * others follow at a pace that leaves room for the rest of the shop.
 *
 * That pace is at least that of the claims: who could make them in a second can look at their ends in one, so holds
 * that end as they were made are on time (to a second: the pace must first be seen).
 */
export class Turns {
  readonly #perSecond: number;
  readonly #now: () => number;
  /** How many turns are given in a slot. */
  readonly #given = new Map<number, number>();
  /** For a full slot: where the search for the next one goes on. Slots never become free again. */
  readonly #next = new Map<number, number>();
  /** When the last claims were made. */
  readonly #claims: number[] = [];
  #sweptMs = 0;

  /** @param perSecond how many ends a second are looked at in any case */
  constructor(perSecond: number, now: () => number = Date.now) {
    this.#perSecond = perSecond;
    this.#now = now;
  }

  /** A claim has taken its units: the pace of claims is a pace that ends may have. */
  claimed(): void {
    this.#claims.push(this.#now());
  }

  /**
   * Takes the next free turn from a hold's end on.
   * @param remainingMs until its end
   * @returns ms from now, never less than `remainingMs`
   */
  take(remainingMs: number): number {
    this.#forget();
    const pace = Math.max(this.#perSecond, (this.#claims.length * 1000) / paceMs);
    const most = Math.ceil((pace * slotMs) / 1000);
    const endMs = this.#now() + remainingMs;
    const first = Math.floor(endMs / slotMs);
    let slot = this.#next.get(first) ?? first;
    while ((this.#given.get(slot) ?? 0) >= most) slot += 1;
    this.#given.set(slot, (this.#given.get(slot) ?? 0) + 1);
    if (slot > first) this.#next.set(first, slot);
    return remainingMs + Math.max(0, slot * slotMs - endMs);
  }

  /** Of how many moments something is known: for tests of what it costs. */
  get kept(): number {
    return this.#given.size + this.#next.size + this.#claims.length;
  }

  #forget(): void {
    const now = this.#now();
    while (this.#claims[0]! <= now - paceMs) this.#claims.shift();
    if (now < this.#sweptMs + sweptEveryMs) return;
    this.#sweptMs = now;
    for (const book of [this.#given, this.#next])
      for (const slot of book.keys()) if ((slot + 1) * slotMs <= now) book.delete(slot);
  }
}

/** Beside an answer that gives a hold its time. */
export interface InTurn {
  /** When its workflow is to look at the end, ms from now; at the end itself if it is not said. */
  turnInMs?: number;
}

/** Says with each answer that gives a hold its time when its workflow is to look at the end. */
export function inTurn(activities: Activities, turns: Turns): Activities {
  return {
    ...activities,
    claim: async (request) => {
      const answer = await activities.claim(request);
      if (answer.outcome === 'HELD') turns.claimed();
      const open =
        answer.outcome === 'HELD' || (answer.outcome === 'ALREADY' && answer.status === 'HELD');
      return open ? { ...answer, turnInMs: turns.take(answer.remainingMs) } : answer;
    },
    extend: async (...asked) => {
      const answer = await activities.extend(...asked);
      return answer.outcome === 'EXTENDED'
        ? { ...answer, turnInMs: turns.take(answer.remainingMs) }
        : answer;
    },
  };
}
