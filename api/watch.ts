import type { Database } from '../db/database.js';
import { DatabaseFault } from '../db/faults.js';
import type { Role } from '../db/keys.js';
import { readAvailability } from '../db/readAvailability.js';
import type { Availability } from '../db/readAvailability.js';
import { Problem } from './errors.js';
import { noProduct } from './refusals.js';
import { showAvailability } from './show.js';

/** At most one read of all changed products in this time, however many streams there are. */
const tickMs = 100;
const skusOfARead = 200;
const readWithinMs = 1500;
const pauseAfterFaultMs = 1000;
/** A net under notifications that were lost. */
const readAgainMs = 30_000;
/** After the end of a hold, so that the read surely finds it overdue. */
const marginMs = 20;
const longestTimerMs = 2 ** 31 - 1;

interface Watched {
  watchers: Set<Watcher>;
  /** Overdue units become available by time alone: nobody announces it. */
  release?: NodeJS.Timeout;
}

/**
 * Availability as it changes, for all streams of this process. A change anywhere marks its product as
 * due; one read per tick asks Postgres for all that are due, and every stream of a product is told the
 * same. There is one listening connection, and none while there is no stream.
 */
export class Watch {
  readonly #db: Database;
  readonly #most: number;
  readonly #stopping: AbortSignal;
  readonly #products = new Map<string, Watched>();
  readonly #watchers = new Set<Watcher>();
  readonly #due = new Set<string>();
  #tick: NodeJS.Timeout | undefined;
  #reading = false;
  #nextReadAt = 0;
  #net: NodeJS.Timeout | undefined;
  #listener: { stop(): void } | undefined;

  constructor(db: Database, most: number, stopping: AbortSignal) {
    this.#db = db;
    this.#most = most;
    this.#stopping = stopping;
    stopping.addEventListener('abort', () => {
      for (const watcher of [...this.#watchers]) watcher.end();
    });
  }

  /**
   * A watcher that knows each of its products.
   * @throws Problem STREAMS_BUSY, PRODUCT_NOT_FOUND; DatabaseFault when they can't be read in time
   */
  async open(skus: string[], role: Role | undefined, withinMs: number): Promise<Watcher> {
    if (this.#watchers.size >= this.#most || this.#stopping.aborted) {
      const detail = `This process has ${this.#watchers.size} open streams, and takes no more.`;
      throw new Problem('STREAMS_BUSY', detail, { retryAfterSeconds: 5 });
    }
    const watcher = new Watcher(skus, role, () => this.#leave(watcher));
    this.#watchers.add(watcher);
    for (const sku of skus) {
      const product = this.#products.get(sku) ?? { watchers: new Set() };
      product.watchers.add(watcher);
      this.#products.set(sku, product);
    }
    this.#listen();
    this.#mark(skus);
    try {
      await watcher.knowsAll(withinMs);
    } catch (error) {
      watcher.end();
      throw error;
    }
    return watcher;
  }

  #leave(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    for (const sku of watcher.skus) {
      const product = this.#products.get(sku);
      product?.watchers.delete(watcher);
      if (product?.watchers.size !== 0) continue;
      clearTimeout(product.release);
      this.#products.delete(sku);
      this.#due.delete(sku);
    }
    if (this.#watchers.size > 0) return;
    this.#listener?.stop();
    this.#listener = undefined;
    clearInterval(this.#net);
    clearTimeout(this.#tick);
    this.#tick = undefined;
  }

  #listen(): void {
    if (this.#listener !== undefined) return;
    this.#listener = this.#db.listen({
      changed: (skus) => this.#mark(skus),
      // Also for the first time: a change after the first read and before this was not heard.
      listening: () => this.#mark(this.#products.keys()),
    });
    this.#net = setInterval(() => this.#mark(this.#products.keys()), readAgainMs);
  }

  #mark(skus: Iterable<string>): void {
    for (const sku of skus) if (this.#products.has(sku)) this.#due.add(sku);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#tick !== undefined || this.#reading || this.#due.size === 0) return;
    this.#tick = setTimeout(
      () => void this.#read(),
      Math.max(0, this.#nextReadAt - performance.now()),
    );
  }

  async #read(): Promise<void> {
    this.#tick = undefined;
    this.#reading = true;
    this.#nextReadAt = performance.now() + tickMs;
    const skus = [...this.#due].slice(0, skusOfARead);
    for (const sku of skus) this.#due.delete(sku);
    try {
      const found = await readAvailability(this.#db, skus, readWithinMs);
      const bySku = new Map(found.map((one) => [one.sku, one]));
      for (const sku of skus) this.#tell(sku, bySku.get(sku) ?? noProduct(sku));
    } catch (error) {
      for (const sku of skus) this.#tell(sku, error as Error);
      for (const sku of skus) if (this.#products.has(sku)) this.#due.add(sku);
      this.#nextReadAt = performance.now() + pauseAfterFaultMs;
    }
    this.#reading = false;
    this.#schedule();
  }

  #tell(sku: string, found: Availability | Error): void {
    const product = this.#products.get(sku);
    if (product === undefined) return;
    if (found instanceof Error) {
      for (const watcher of product.watchers) watcher.failed(found);
      return;
    }
    for (const watcher of product.watchers) watcher.hear(found);
    clearTimeout(product.release);
    if (found.nextReleaseAt === null) return;
    const leftMs = Date.parse(found.nextReleaseAt) - Date.parse(found.asOf) + marginMs;
    product.release = setTimeout(() => this.#mark([sku]), Math.min(leftMs, longestTimerMs));
  }
}

/** One stream's view: of each product the newest state that it was not told yet. */
export class Watcher {
  readonly skus: string[];
  readonly #role: Role | undefined;
  readonly #leave: () => void;
  readonly #unknown: Set<string>;
  /** What it was told last of a product, but for the time of the read. */
  readonly #told = new Map<string, string>();
  readonly #news = new Map<string, { id: string; data: string }>();
  #ended = false;
  #wake: (error?: Error) => void = () => {};

  constructor(skus: string[], role: Role | undefined, leave: () => void) {
    this.skus = skus;
    this.#role = role;
    this.#leave = leave;
    this.#unknown = new Set(skus);
  }

  hear(one: Availability): void {
    const { as_of: asOf, ...shown } = showAvailability(one, this.#role);
    const state = JSON.stringify(shown);
    this.#unknown.delete(one.sku);
    if (this.#told.get(one.sku) === state) return;
    this.#told.set(one.sku, state);
    // A slow reader is told the newest state only.
    this.#news.set(one.sku, { id: asOf, data: JSON.stringify({ ...shown, as_of: asOf }) });
    if (this.#unknown.size === 0) this.#wake();
  }

  /** Only a stream that has not begun can fail: later reads are tried again. */
  failed(error: Error): void {
    if (this.#unknown.size > 0) this.#wake(error);
  }

  async knowsAll(withinMs: number): Promise<void> {
    if (this.#unknown.size === 0) return;
    const error = await this.#waken(withinMs);
    if (error !== undefined) throw error;
    if (this.#unknown.size > 0)
      throw new DatabaseFault('DATABASE_UNAVAILABLE', 'availability could not be read in time');
  }

  /** What is new, as events; nothing after `withinMs`, undefined when the stream is over. */
  async next(withinMs: number): Promise<{ id: string; data: string }[] | undefined> {
    if (this.#news.size === 0 && !this.#ended) await this.#waken(withinMs);
    if (this.#ended) return undefined;
    const news = [...this.#news.values()];
    this.#news.clear();
    return news;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#leave();
    this.#wake();
  }

  #waken(withinMs: number): Promise<Error | undefined> {
    return new Promise((resolve) => {
      const done = (error?: Error) => {
        clearTimeout(timer);
        this.#wake = () => {};
        resolve(error);
      };
      const timer = setTimeout(() => done(), withinMs);
      this.#wake = done;
    });
  }
}

const beatMs = 15_000;
/** A reader that takes nothing for so long is cut: it connects again when it can. */
const takeWithinMs = 20_000;

/** Writes what a watcher hears as server-sent events, until it ends or its reader has gone. */
export async function events(
  watcher: Watcher,
  {
    write,
    gone,
    mayGoOn,
  }: {
    write: (piece: string) => Promise<void>;
    gone: AbortSignal;
    mayGoOn: () => Promise<boolean>;
  },
): Promise<void> {
  const end = () => watcher.end();
  gone.addEventListener('abort', end);
  if (gone.aborted) end();
  let checkedAt = performance.now();
  try {
    // Not all of them at the same moment, when a process with many streams ends.
    await inTime(write(`retry: ${2000 + Math.floor(Math.random() * 3000)}\n\n`));
    for (;;) {
      const news = await watcher.next(beatMs);
      if (news === undefined) return;
      if (performance.now() - checkedAt >= beatMs) {
        if (!(await mayGoOn())) return;
        checkedAt = performance.now();
      }
      await inTime(write(news.length === 0 ? ':\n\n' : news.map(event).join('')));
    }
  } finally {
    gone.removeEventListener('abort', end);
    end();
  }
}

function event({ id, data }: { id: string; data: string }): string {
  return `event: availability\nid: ${id}\ndata: ${data}\n\n`;
}

async function inTime(written: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('the reader takes nothing')), takeWithinMs);
  });
  try {
    await Promise.race([written, late]);
  } finally {
    clearTimeout(timer);
  }
}
