import { DatabaseFault } from '../db/faults.js';

/** What one transaction decides; whoever is in it waits for all of them. */
export const mostInABatch = 50;

/** What `Places` knows of a lane. */
interface Queue {
  readonly rank: number;
  /** Somebody waits in it, and one more of its statements may run. */
  readonly ready: boolean;
  /** Takes its next calls at once, and decides them. */
  run(): Promise<void>;
}

/**
 * The statements that run at once. Who waits is served by rank, the lowest first; lanes of one rank take
 * turns.
 */
export class Places {
  readonly #most: number;
  /** Lanes that are ready, in turn. */
  readonly #ready = new Set<Queue>();
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Serves this lane and the others as far as there are places. */
  serve(lane: Queue): void {
    if (lane.ready) this.#ready.add(lane);
    while (this.#taken < this.#most && this.#ready.size > 0) {
      const [first] = [...this.#ready].sort((a, b) => a.rank - b.rank);
      void this.#run(first!);
    }
  }

  async #run(lane: Queue): Promise<void> {
    this.#taken += 1;
    const run = lane.run();
    // Last in turn now.
    this.#ready.delete(lane);
    if (lane.ready) this.#ready.add(lane);
    await run;
    this.#taken -= 1;
    this.serve(lane);
  }
}

/** With a wait of 50 ms each: then its own workflow tries again, and an operator sees why. */
const triesWhileBusy = 6;

export interface LaneOptions<Request, Outcome> {
  rank?: number;
  /** Of its statements at once. */
  most: number;
  alone: (request: Request) => Promise<Outcome>;
  /**
   * Up to 50 in one statement, answered in the same order. ALONE: left to `alone`. BUSY: somebody keeps
   * its stock; it waits for a later batch. Without it everyone goes alone.
   */
  batch?: (
    requests: Request[],
  ) => Promise<(Outcome | { outcome: 'ALONE' } | { outcome: 'BUSY' })[]>;
  /** When nobody waits or is decided any more: after each answer of the last call is out. */
  whenIdle?: () => void;
}

interface Waiting<Request, Outcome> {
  request: Request;
  resolve: (outcome: Outcome) => void;
  reject: (error: unknown) => void;
  /** How often its stock was kept by somebody. */
  busy: number;
}

/**
 * Calls that meet here go to Postgres together, in the order of their arrival. Nothing waits for company: a
 * call that finds a free place goes at once, and what arrives while the places are taken becomes the next
 * batch. So an idle shop pays nothing for it, and a rush pays one lock and one commit for up to 50 calls.
 *
 * Everyone gets its own answer. What the batch does not decide, or fails on, is asked alone, so that a
 * poisoned call never fails its neighbours.
 */
export class Lane<Request, Outcome extends { outcome: string }> implements Queue {
  readonly rank: number;
  readonly #places: Places;
  readonly #options: LaneOptions<Request, Outcome>;
  #waiting: Waiting<Request, Outcome>[] = [];
  #running = 0;

  constructor(places: Places, options: LaneOptions<Request, Outcome>) {
    this.rank = options.rank ?? 0;
    this.#places = places;
    this.#options = options;
  }

  get ready(): boolean {
    return this.#waiting.length > 0 && this.#running < this.#options.most;
  }

  ask(request: Request): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ request, resolve, reject, busy: 0 });
      this.#places.serve(this);
    });
  }

  async run(): Promise<void> {
    const { batch } = this.#options;
    const taken = this.#waiting.splice(0, batch === undefined ? 1 : mostInABatch);
    this.#running += 1;
    if (batch === undefined) await this.#eachAlone(taken);
    else await this.#decide(batch, taken);
    this.#running -= 1;
    if (this.#waiting.length === 0 && this.#running === 0) this.#options.whenIdle?.();
  }

  /** Never rejects: each call hears its answer or its error. */
  async #decide(
    batch: NonNullable<LaneOptions<Request, Outcome>['batch']>,
    taken: Waiting<Request, Outcome>[],
  ): Promise<void> {
    try {
      const outcomes = await batch(taken.map(({ request }) => request));
      const left: typeof taken = [];
      for (const [index, outcome] of outcomes.entries()) {
        const one = taken[index]!;
        if (outcome.outcome === 'ALONE') left.push(one);
        else if (outcome.outcome === 'BUSY') this.#again(one);
        else one.resolve(outcome as Outcome);
      }
      await this.#eachAlone(left);
    } catch (error) {
      // Somebody's lock or an outage is everyone's: each is tried again by its own workflow. Anything else
      // is about one of them.
      if (error instanceof DatabaseFault) for (const one of taken) one.reject(error);
      else await this.#eachAlone(taken);
    }
  }

  #again(one: Waiting<Request, Outcome>): void {
    one.busy += 1;
    if (one.busy < triesWhileBusy) this.#waiting.push(one);
    else one.reject(new DatabaseFault('STOCK_LOCK_TIMEOUT', 'the stock is locked by someone else'));
  }

  /** One after the other: the batch has one connection, and 50 more would be waited for in vain. */
  async #eachAlone(calls: Waiting<Request, Outcome>[]): Promise<void> {
    for (const { request, resolve, reject } of calls)
      await this.#options.alone(request).then(resolve, reject);
  }
}
