import type { Books, Hold, Payment } from './books.js';
import type { Call } from './lane.js';
import type { Change } from './replay.js';
import type { World } from './world.js';

/**
 * Was a refusal true? What a call could see at an instant is not known exactly: a change becomes
 * visible somewhere between its own clock reading and the moment when somebody had its answer. So
 * every doubt is decided for the refusal: what is called false here was false at every instant of
 * the call.
 */
export class Moments {
  readonly #changes: Map<string, Change>;
  readonly #books: Books;
  readonly #world: World;
  readonly #holds: Life[];
  /** Per bin the number of available units after each version, and when it may have been seen. */
  readonly #versions = new Map<number, { at: number; known: number; available: number }[]>();
  readonly #times: number[];

  constructor(world: World, books: Books, changes: Map<string, Change>) {
    this.#world = world;
    this.#books = books;
    this.#changes = changes;
    const owner = new Map(
      [...changes.values()].flatMap((change) =>
        change.movements.map((movement) => [movement, change]),
      ),
    );
    for (const { id } of books.bins) this.#versions.set(id, [{ at: 0, known: 0, available: 0 }]);
    for (const movement of books.movements) {
      const { at, known } = owner.get(movement)!;
      this.#versions.get(movement.bin)!.push({ at, known, available: movement.to[0] });
    }
    const reclaimer = new Map<string, Change>();
    for (const change of changes.values()) {
      for (const { type, hold } of change.movements) {
        if (type === 'release_reservation') reclaimer.set(hold!, change);
      }
    }
    this.#holds = books.holds
      .filter(({ status }) => status !== 'REJECTED')
      .map((hold) => ({
        hold,
        claimed: changes.get(`claim ${hold.id}`)!,
        closed: reclaimer.get(hold.id) ?? changes.get(`confirm ${hold.id}`),
        again: changes.get(`late ${hold.id}`),
        // A payment in time may have stopped the reclaim from its arrival on; one that did not fit never did.
        paidFrom: Math.min(
          ...books.payments
            .filter(
              (payment) =>
                payment.hold === hold.id && payment.inTime && payment.reason !== 'MISMATCH',
            )
            .map(({ receivedAt }) => receivedAt!),
        ),
      }));
    this.#times = [
      ...[...changes.values()].flatMap(({ at, known }) => [at, known]),
      ...this.#holds.flatMap(({ hold, paidFrom }) => [hold.endsAt!, paidFrom]),
    ];
  }

  /** True when at some instant of the call each of these products may have had fewer units than wanted, and no fewer than the answer said. */
  couldBeShort(
    call: Call,
    lines: { sku: string; quantity: number; shown?: number }[],
    reclaims = true,
  ): boolean {
    return this.#instants(call).some((t) =>
      lines.every(({ sku, quantity, shown }) => {
        const least = this.#least(sku, t, reclaims);
        return least < quantity && (shown === undefined || least <= shown);
      }),
    );
  }

  /** True when at some instant of the call the buyer may have had too many units of the product. */
  couldBeOverLimit(
    call: Call,
    buyer: string,
    sku: string,
    quantity: number,
    reclaims = true,
  ): boolean {
    const { limit } = this.#world.products.find((product) => product.sku === sku)!;
    if (limit === null) return false;
    return this.#instants(call).some(
      (t) => this.#most(buyer, sku, t, reclaims, call) + quantity > limit,
    );
  }

  /** Holds of this buyer that certainly counted when the change was made, beside its own: the limit was passed if they leave no room. */
  certainlyBought(change: Change, ended: number, buyer: string, sku: string): number {
    return this.#holds
      .filter(({ hold, claimed, closed, again }) => {
        if (hold.buyer !== buyer || claimed === change || again === change) return false;
        // The buyer's lock puts the claims, and the late acceptances, in the order of their clocks.
        const open =
          claimed.at < change.at && !(closed && closed.kind !== 'confirm' && closed.at <= ended);
        return open || (again !== undefined && again.at < change.at);
      })
      .reduce((sum, { hold }) => sum + unitsOf(hold, sku), 0);
  }

  /** The least that a product had to sell at an instant, overdue unpaid units included. */
  #least(sku: string, t: number, reclaims: boolean): number {
    const overdue = new Map<number, number>();
    if (reclaims) {
      for (const life of this.#holds) {
        if (!certainlyOverdue(life, t)) continue;
        for (const { type, bin, quantity } of life.claimed.movements) {
          if (type === 'reserve') overdue.set(bin, (overdue.get(bin) ?? 0) + quantity);
        }
      }
    }
    let units = 0;
    for (const bin of this.#books.bins) {
      if (bin.sku !== sku) continue;
      const versions = this.#versions.get(bin.id)!;
      let least = Infinity;
      versions.forEach(({ at, available }, index) => {
        const next = versions[index + 1];
        if (at <= t && (next === undefined || next.known >= t)) least = Math.min(least, available);
      });
      units += Math.max(0, least + (overdue.get(bin.id) ?? 0) - bin.safety);
    }
    return units;
  }

  #most(buyer: string, sku: string, t: number, reclaims: boolean, call: Call): number {
    const own = call.ask.what === 'confirm' ? call.ask.holdId : undefined;
    return this.#holds
      .filter((life) => {
        const { hold, claimed, closed, again } = life;
        if (hold.buyer !== buyer || hold.id === own || claimed.at > t) return false;
        if (again && again.at <= t) return true;
        if (closed && closed.kind !== 'confirm' && closed.known < t) return false;
        return !(reclaims && certainlyOverdue(life, t));
      })
      .reduce((sum, { hold }) => sum + unitsOf(hold, sku), 0);
  }

  /** Where anything changes within the call, and between. */
  #instants({ began, ended }: Call): number[] {
    const inside = this.#times.filter((t) => t > began && t < ended).sort((a, b) => a - b);
    const edges = [began, ...inside, ended];
    return edges.flatMap((t, index) => (index === 0 ? [t] : [(edges[index - 1]! + t) / 2, t]));
  }

  /** What may be seen of a hold from one instant to another. */
  possible(id: string, from: number, to: number): Set<string> {
    const seen = new Set<string>();
    const life = this.#holds.find(({ hold }) => hold.id === id);
    const add = (status: string, earliest: number, latest: number) => {
      if (earliest <= to && latest >= from) seen.add(status);
    };
    if (!life) {
      const rejected = this.#books.holds.find((hold) => hold.id === id);
      seen.add('none');
      if (rejected) add('REJECTED', rejected.createdAt, Infinity);
      return seen;
    }
    const { hold, claimed, closed, again } = life;
    add('none', 0, claimed.known);
    add('HELD', claimed.at, closed?.known ?? Infinity);
    if (closed?.kind === 'confirm') add('CONFIRMED', closed.at, Infinity);
    else if (closed)
      add(
        hold.status === 'CANCELLED' ? 'CANCELLED' : 'EXPIRED',
        closed.at,
        again?.known ?? Infinity,
      );
    if (again) add('CONFIRMED', again.at, Infinity);
    return seen;
  }

  /** When a hold first stopped being HELD: an accepted late payment closes it a second time. */
  firstClosedAt(id: string): number {
    return this.#holds.find(({ hold }) => hold.id === id)?.closed?.at ?? Infinity;
  }

  change(key: string): Change | undefined {
    return this.#changes.get(key);
  }
}

/** A hold with the transactions of its life. */
interface Life {
  hold: Hold;
  claimed: Change;
  closed: Change | undefined;
  again: Change | undefined;
  paidFrom: number;
}

function certainlyOverdue({ hold, claimed, closed, paidFrom }: Life, t: number): boolean {
  return claimed.known <= t && hold.endsAt! <= t && !(closed && closed.at <= t) && paidFrom > t;
}

function unitsOf(hold: Hold, sku: string): number {
  return hold.lines.find((line) => line.sku === sku)?.quantity ?? 0;
}

export type { Payment };
