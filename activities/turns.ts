import type { Activities } from './index.js';

/** Turns are given by the tenth of a second. */
const slotMs = 100;
/** The first second after the end of a crowd belongs to those who want its units, and come at that moment. */
const pauseSlots = 10;
/** The pace of claims is that of the last second. */
const paceMs = 1000;
const sweptEveryMs = 10_000;

/**
 * When the workflows of holds look at their end. Thousands that end in the same second would all ask Temporal for
 * their task at once, and claims and payments would wait behind them (F13, F35). The units can be sold again from the
 * end on without their help (R07), so a worker gives them turns: the first ones of each moment are on time, the
 * others follow from a second later on, at a pace that leaves room for the rest of the shop.
 *
 * That pace is at least a quarter of the claims' own: a machine that makes many claims can look at many ends. More than
 * a quarter left no room for claims once the crowd was larger than the cache of workflows, and each end a replay: at half
 * of it claims took 30 s while 10,000 ended. A hold that is paid or cancelled gives its turn back.
 */
export class Turns {
  readonly #perSecond: number;
  readonly #now: () => number;
  /** How many turns are given in a slot. */
  readonly #given = new Map<number, number>();
  /** Where the turns of open holds are. */
  readonly #slots = new Map<string, number>();
  /** For a full slot: where the search for the next one that ends then goes on. */
  readonly #next = new Map<number, number>();
  /** When the claims of the last second were made. */
  readonly #claims: number[] = [];
  #sweptMs = 0;

  /** @param perSecond how many ends a second are looked at in any case */
  constructor(perSecond: number, now: () => number = () => performance.now()) {
    this.#perSecond = perSecond;
    this.#now = now;
  }

  /** A claim has taken its units. */
  claimed(): void {
    this.#claims.push(this.#now());
  }

  /**
   * Takes the next free turn from a hold's end on, in place of the one that it may have.
   * @param remainingMs until its end
   * @returns ms from now, never less than `remainingMs`
   */
  take(holdId: string, remainingMs: number): number {
    this.giveBack(holdId);
    this.#forget();
    const pace = Math.max(this.#perSecond, (this.#claims.length * 1000) / paceMs / 4);
    const endMs = this.#now() + remainingMs;
    const first = Math.floor(endMs / slotMs);
    // Five a second are one in every other slot; rounded up for each slot they would be ten.
    const until = (slot: number) => Math.floor((slot * pace * slotMs) / 1000);
    const most = (slot: number) => Math.max(until(slot + 1) - until(slot), slot === first ? 1 : 0);
    const full = (slot: number) => (this.#given.get(slot) ?? 0) >= most(slot);
    let slot = this.#next.get(first) ?? (full(first) ? first + pauseSlots : first);
    while (full(slot)) slot += 1;
    this.#given.set(slot, (this.#given.get(slot) ?? 0) + 1);
    this.#slots.set(holdId, slot);
    if (slot > first) this.#next.set(first, slot);
    return remainingMs + Math.max(0, slot * slotMs - endMs);
  }

  /** Its workflow will not look: who ends at that time later on may have the turn. */
  giveBack(holdId: string): void {
    const slot = this.#slots.get(holdId);
    if (slot === undefined) return;
    this.#slots.delete(holdId);
    this.#given.set(slot, this.#given.get(slot)! - 1);
  }

  /** How much is known: for tests of what it costs. */
  get kept(): number {
    return this.#given.size + this.#slots.size + this.#next.size + this.#claims.length;
  }

  /** What has passed. */
  #forget(): void {
    const now = this.#now();
    while (this.#claims[0]! <= now - paceMs) this.#claims.shift();
    if (now < this.#sweptMs + sweptEveryMs) return;
    this.#sweptMs = now;
    const passed = (slot: number) => (slot + 1) * slotMs <= now;
    for (const [holdId, slot] of this.#slots) if (passed(slot)) this.#slots.delete(holdId);
    for (const book of [this.#given, this.#next])
      for (const slot of book.keys()) if (passed(slot)) book.delete(slot);
  }
}

/** Beside an answer that gives a hold its time. */
export interface InTurn {
  /** When its workflow is to look at the end, ms from now; at the end itself if it is not said. */
  turnInMs?: number;
}

/** Says with each answer that gives a hold its time when its workflow is to look at the end. */
export function inTurn(activities: Activities, turns: Turns): Activities {
  const given = <Answer extends { remainingMs: number }>(holdId: string, answer: Answer) =>
    // What is not a time gets no turn: the workflow asks again (F12).
    Number.isFinite(answer.remainingMs)
      ? { ...answer, turnInMs: turns.take(holdId, answer.remainingMs) }
      : answer;
  return {
    ...activities,
    claim: async (request) => {
      const answer = await activities.claim(request);
      if (answer.outcome === 'HELD') turns.claimed();
      const open =
        answer.outcome === 'HELD' || (answer.outcome === 'ALREADY' && answer.status === 'HELD');
      return open ? given(request.holdId, answer) : answer;
    },
    extend: async (holdId, ...asked) => {
      const answer = await activities.extend(holdId, ...asked);
      return answer.outcome === 'EXTENDED' ? given(holdId, answer) : answer;
    },
    confirm: async (holdId, payment) => {
      const answer = await activities.confirm(holdId, payment);
      if (answer.outcome === 'CONFIRMED') turns.giveBack(holdId);
      return answer;
    },
    cancel: async (holdId, ...asked) => {
      const answer = await activities.cancel(holdId, ...asked);
      if (answer.outcome === 'CANCELLED') turns.giveBack(holdId);
      return answer;
    },
  };
}
