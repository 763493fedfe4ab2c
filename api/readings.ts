import type { Database } from '../db/database.js';
import { DatabaseFault } from '../db/faults.js';
import { readCheckouts } from '../db/readCheckouts.js';
import type { CheckoutProduct, WantedCheckout } from '../db/readCheckouts.js';
import type { ClaimRefusal } from '../db/claim.js';
import type { Hold } from '../db/readHold.js';
import type { Line } from '../db/values.js';

/** A read that hangs holds up nobody for longer: the next one begins beside it. */
const besideAfterMs = 50;
const atOnce = 3;
/** A statement about more would keep the first of them waiting for the last. */
const mostInOne = 500;
/** First reads while Postgres is away: a 503 comes in under 2 s. */
const readWithinMs = 1500;

/** What one read found, shared by all that it was made for. */
export interface Reading {
  /** By `performance.now()`, before it was sent: it knows of everything that was committed by then. */
  beganAt: number;
  /** The database's clock at the read. */
  now: string;
  holds: Map<string, Hold>;
  products: Map<string, CheckoutProduct>;
  /** Of the buyers who order their cart. */
  carts: Map<string, Line[]>;
  /** Buyers whom a rule of the installation refuses. */
  refused: Map<string, ClaimRefusal>;
  /** What a product's limit counts of a buyer. */
  bought(buyerId: string, sku: string): number;
}

interface Asked {
  wanted: WantedCheckout;
  resolve: (reading: Reading) => void;
  reject: (error: unknown) => void;
}

/**
 * Reads of Postgres that many requests share: one statement serves all that arrived before it began. A
 * request never gets an older one, so what is refused on its ground was true after the request came.
 */
export class Readings {
  readonly #db: Database;
  #waiting: Asked[] = [];
  #running = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @throws DatabaseFault DATABASE_UNAVAILABLE after `withinMs` at the latest */
  read(wanted: WantedCheckout, withinMs: number): Promise<Reading> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(
        () =>
          reject(new DatabaseFault('DATABASE_UNAVAILABLE', 'Postgres gave no answer in time', {})),
        Math.min(withinMs, readWithinMs + besideAfterMs),
      );
      const end = <T>(say: (what: T) => void) => {
        return (what: T) => {
          clearTimeout(late);
          say(what);
        };
      };
      this.#waiting.push({ wanted, resolve: end(resolve), reject: end(reject) });
      if (this.#waiting.length > 1) return;
      // What arrives in the same turn of the loop shares the read that follows it.
      if (this.#running === 0) setImmediate(() => this.#begin());
      else this.#timer = setTimeout(() => this.#begin(), besideAfterMs);
    });
  }

  #begin(): void {
    clearTimeout(this.#timer);
    if (this.#waiting.length === 0 || this.#running >= atOnce) return;
    const asked = this.#waiting.splice(0, mostInOne);
    // The others, and whoever comes after them, wait no longer for this one than those who come during it.
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#begin(), besideAfterMs);
    this.#running += 1;
    void this.#read(asked).finally(() => {
      this.#running -= 1;
      this.#begin();
    });
  }

  async #read(asked: Asked[]): Promise<void> {
    try {
      const wanted = asked.map((one) => one.wanted);
      const beganAt = performance.now();
      const found = await readCheckouts(this.#db, wanted, readWithinMs);
      const reading = asReading(found, beganAt);
      for (const { resolve } of asked) resolve(reading);
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
}

function asReading(found: Awaited<ReturnType<typeof readCheckouts>>, beganAt: number): Reading {
  const carts = new Map<string, Line[]>();
  for (const { buyerId, sku, quantity } of found.carts) {
    const lines = carts.get(buyerId) ?? [];
    lines.push({ sku, quantity });
    carts.set(buyerId, lines);
  }
  const bought = new Map(
    found.bought.map(({ buyerId, sku, units }) => [JSON.stringify([buyerId, sku]), units]),
  );
  return {
    beganAt,
    now: found.now,
    holds: new Map(found.holds.map((hold) => [hold.id, hold])),
    products: new Map(found.products.map((product) => [product.sku, product])),
    carts,
    refused: new Map(found.refused.map(({ buyerId, refusal }) => [buyerId, refusal])),
    bought: (buyerId, sku) => bought.get(JSON.stringify([buyerId, sku])) ?? 0,
  };
}
