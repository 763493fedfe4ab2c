import type { Books, Hold, Movement } from './books.js';
import type { Call } from './lane.js';
import type { World } from './world.js';

/** One transaction that changed stock, put together from its movements. */
export interface Change {
  key: string;
  kind: 'claim' | 'close' | 'confirm' | 'late' | 'stock';
  hold: string | null;
  at: number;
  /** When its commit was certainly over, by whoever saw its answer. */
  known: number;
  movements: Movement[];
}

/** The ledger as a history of whole transactions. */
export interface History {
  changes: Map<string, Change>;
  violations: string[];
}

/** Groups the movements by the transaction that made them. */
export function changesOf(books: Books, calls: Call[]): Map<string, Change> {
  const late = new Set(
    books.movements
      .filter(({ reason }) => reason === 'late payment accepted')
      .map(({ hold }) => hold),
  );
  const keyOf = (movement: Movement): [Change['kind'], string | null] => {
    switch (movement.type) {
      case 'reserve':
        return [movement.reason === 'checkout' ? 'claim' : 'late', movement.hold];
      case 'confirm_sold':
        return [late.has(movement.hold) ? 'late' : 'confirm', movement.hold];
      case 'release_reservation':
        // A reclaim belongs to the claim that did it.
        return movement.actor.startsWith('claim ')
          ? ['claim', movement.actor.slice(6)]
          : ['close', movement.hold];
      default:
        return ['stock', `${movement.bin} ${movement.request}`];
    }
  };
  const changes = new Map<string, Change>();
  for (const movement of books.movements) {
    const [kind, about] = keyOf(movement);
    const key = `${kind} ${about}`;
    let change = changes.get(key);
    if (!change) {
      change = {
        key,
        kind,
        hold: kind === 'stock' ? null : about,
        at: movement.at,
        known: Infinity,
        movements: [],
      };
      changes.set(key, change);
    }
    change.movements.push(movement);
  }
  const binOf = new Map(books.bins.map(({ id, sku, code }) => [`${sku} ${code}`, id]));
  const seen = (key: string, call: Call) => {
    const change = changes.get(key);
    if (change) change.known = Math.min(change.known, call.known);
  };
  for (const call of calls) {
    const { ask, answer } = call;
    if (!answer) continue;
    if (ask.what === 'claim' && answer.outcome === 'HELD')
      seen(`claim ${ask.request.holdId}`, call);
    if (ask.what === 'expire' && answer.outcome === 'EXPIRED') seen(`close ${ask.holdId}`, call);
    if (ask.what === 'cancel' && answer.outcome === 'CANCELLED') seen(`close ${ask.holdId}`, call);
    if (ask.what === 'confirm' && answer.outcome === 'CONFIRMED') {
      seen(`confirm ${ask.holdId}`, call);
      seen(`late ${ask.holdId}`, call);
    }
    if (ask.what === 'stock' && answer.outcome === 'DONE') {
      seen(`stock ${binOf.get(`${ask.sku} ${ask.bin}`)} ${ask.requestId}`, call);
    }
  }
  for (const change of changes.values())
    if (change.movements[0]!.reason === 'opening') change.known = 0;
  return changes;
}

/**
 * Puts the transactions into one order that every bin and every hold agrees with, and replays them
 * one by one against a model with plain numbers. No such order, or a step that the model does not
 * allow, is a violation.
 */
export function replay(world: World, books: Books, changes: Map<string, Change>): string[] {
  const violations: string[] = [];
  const order = inOrder(books, changes);
  if (order.length < changes.size) {
    violations.push('no sequential order of the transactions fits the versions of all bins');
    return violations;
  }
  const holds = new Map(books.holds.map((hold) => [hold.id, hold]));
  const model = new Model(world, books);
  for (const change of order) {
    for (const wrong of model.apply(change, holds)) violations.push(`${change.key}: ${wrong}`);
  }
  violations.push(...model.compare(books));
  return violations;
}

function inOrder(books: Books, changes: Map<string, Change>): Change[] {
  const later = new Map<Change, Set<Change>>();
  const before = new Map<Change, number>();
  for (const change of changes.values()) {
    later.set(change, new Set());
    before.set(change, 0);
  }
  const edge = (from: Change, to: Change) => {
    if (from === to || later.get(from)!.has(to)) return;
    later.get(from)!.add(to);
    before.set(to, before.get(to)! + 1);
  };
  const lastOf = new Map<string, Change>();
  const owner = new Map<Movement, Change>();
  for (const change of changes.values())
    for (const movement of change.movements) owner.set(movement, change);
  for (const movement of books.movements) {
    const change = owner.get(movement)!;
    const last = lastOf.get(`bin ${movement.bin}`);
    if (last) edge(last, change);
    lastOf.set(`bin ${movement.bin}`, change);
  }
  const order: Change[] = [];
  const ready = [...changes.values()].filter((change) => before.get(change) === 0);
  while (ready.length > 0) {
    ready.sort((a, b) => b.at - a.at);
    const change = ready.pop()!;
    order.push(change);
    for (const next of later.get(change)!) {
      before.set(next, before.get(next)! - 1);
      if (before.get(next) === 0) ready.push(next);
    }
  }
  return order;
}

type Status = Hold['status'];

/** The shop as plain numbers: what a sequential program would do. */
class Model {
  readonly #bins = new Map<
    number,
    { counts: [number, number, number]; version: number; safety: number; sku: string }
  >();
  readonly #spread: Map<string, boolean>;
  readonly #status = new Map<string, Status>();
  readonly #units = new Map<string, Map<number, number>>();

  constructor(world: World, books: Books) {
    for (const { id, sku, safety } of books.bins) {
      this.#bins.set(id, { counts: [0, 0, 0], version: 0, safety, sku });
    }
    this.#spread = new Map(world.products.map(({ sku, spread }) => [sku, spread]));
  }

  apply(change: Change, holds: Map<string, Hold>): string[] {
    const wrong: string[] = [];
    const hold = change.hold === null ? undefined : holds.get(change.hold);
    if (change.kind !== 'stock' && !hold) return ['no such hold'];
    const released = change.movements.filter(({ type }) => type === 'release_reservation');
    const reserved = change.movements.filter(({ type }) => type === 'reserve');
    const sold = change.movements.filter(({ type }) => type === 'confirm_sold');

    for (const id of new Set(released.map(({ hold }) => hold!))) {
      const mine = released.filter((movement) => movement.hold === id);
      const closed = holds.get(id)!;
      const cancelled = mine[0]!.actor === 'buyer';
      if (this.#status.get(id) !== 'HELD')
        wrong.push(`gives back ${id}, which is ${this.#status.get(id)}`);
      if (!sameUnits(this.#units.get(id), mine))
        wrong.push(`gives back other units of ${id} than it took`);
      if (!cancelled && closed.endsAt! > change.at) wrong.push(`expires ${id} before its end`);
      this.#status.set(id, cancelled ? 'CANCELLED' : 'EXPIRED');
    }
    this.#move(released, wrong);
    if (reserved.length > 0) {
      const expected = change.kind === 'claim' ? undefined : 'EXPIRED';
      if (this.#status.get(hold!.id) !== expected)
        wrong.push(`takes units while ${this.#status.get(hold!.id)}`);
      this.#status.set(hold!.id, 'HELD');
      this.#units.set(hold!.id, new Map(reserved.map(({ bin, quantity }) => [bin, quantity])));
      for (const { sku, quantity } of hold!.lines) {
        const mine = reserved.filter((movement) => movement.sku === sku);
        wrong.push(...this.#allocation(sku, quantity, mine));
      }
      this.#move(reserved, wrong);
    }
    if (sold.length > 0) {
      if (this.#status.get(hold!.id) !== 'HELD')
        wrong.push(`sells while ${this.#status.get(hold!.id)}`);
      if (!sameUnits(this.#units.get(hold!.id), sold)) wrong.push('sells other units than it took');
      this.#status.set(hold!.id, 'CONFIRMED');
      this.#move(sold, wrong);
    }
    if (change.kind === 'stock') this.#move(change.movements, wrong);
    return wrong;
  }

  /** Which bins a line must have been taken from, in the state just before. */
  #allocation(sku: string, quantity: number, taken: Movement[]): string[] {
    const sellable = [...this.#bins]
      .filter(([, bin]) => bin.sku === sku)
      .map(([id, bin]): [number, number] => [id, Math.max(0, bin.counts[0] - bin.safety)])
      .sort(([a], [b]) => a - b);
    const units = taken.reduce((sum, movement) => sum + movement.quantity, 0);
    if (units !== quantity) return [`takes ${units} of ${sku} for a line of ${quantity}`];
    const short = taken.find(
      ({ bin, quantity }) => quantity > sellable.find(([id]) => id === bin)![1],
    );
    if (short)
      return [
        `takes ${short.quantity} from bin ${short.bin}, which had ${sellable.find(([id]) => id === short.bin)![1]} sellable`,
      ];
    if (this.#spread.get(sku)) {
      return taken.length > 1 && sellable.some(([, units]) => units >= quantity)
        ? [`spreads a line of ${sku} over ${taken.length} bins though one covers it`]
        : [];
    }
    let left = quantity;
    const filled = sellable.flatMap(([id, units]) => {
      const part = Math.min(left, units);
      left -= part;
      return part > 0 ? [`${part} of ${id}`] : [];
    });
    const got = [...taken]
      .sort((a, b) => a.bin - b.bin)
      .map(({ bin, quantity }) => `${quantity} of ${bin}`);
    return String(filled) === String(got)
      ? []
      : [`takes ${got.join(', ')} of ${sku}; in order it is ${filled.join(', ')}`];
  }

  #move(movements: Movement[], wrong: string[]): void {
    for (const movement of [...movements].sort((a, b) => a.bin - b.bin || a.version - b.version)) {
      const bin = this.#bins.get(movement.bin)!;
      const { from, to } = movement;
      if (movement.version !== bin.version + 1)
        wrong.push(`bin ${movement.bin}: version ${movement.version} after ${bin.version}`);
      if (String(from) !== String(bin.counts))
        wrong.push(
          `bin ${movement.bin}: begins at ${String(from)} but was at ${String(bin.counts)}`,
        );
      if (to.some((count) => count < 0)) wrong.push(`bin ${movement.bin}: below zero`);
      bin.version = movement.version;
      bin.counts = [...to];
    }
  }

  /** At the end the database says of every bin and hold what the model says. */
  compare(books: Books): string[] {
    const wrong: string[] = [];
    for (const bin of books.bins) {
      const { counts, version } = this.#bins.get(bin.id)!;
      const shown = [bin.available, bin.held, bin.sold];
      if (String(shown) !== String(counts) || bin.version !== version) {
        wrong.push(
          `bin ${bin.id} shows ${String(shown)} at version ${bin.version}, the ledger ${String(counts)} at ${version}`,
        );
      }
    }
    for (const hold of books.holds) {
      const status = this.#status.get(hold.id) ?? 'REJECTED';
      if (hold.status !== status)
        wrong.push(`hold ${hold.id} is ${hold.status}, by the ledger ${status}`);
      const units = hold.allocations.map(({ bin, quantity }) => `${bin}: ${quantity}`).sort();
      const replayed = [...(this.#units.get(hold.id) ?? [])]
        .map(([bin, quantity]) => `${bin}: ${quantity}`)
        .sort();
      if (String(units) !== String(replayed))
        wrong.push(`hold ${hold.id} has ${String(units)}, by the ledger ${String(replayed)}`);
      for (const { open } of hold.lines) {
        if (open !== (hold.status === 'HELD' ? hold.endsAt : null))
          wrong.push(`hold ${hold.id}: its line's end is not its own`);
      }
    }
    return wrong;
  }
}

function sameUnits(units: Map<number, number> | undefined, movements: Movement[]): boolean {
  return (
    units !== undefined &&
    units.size === movements.length &&
    movements.every(({ bin, quantity }) => units.get(bin) === quantity)
  );
}
