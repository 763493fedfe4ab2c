import pg from 'pg';
import type { Calls } from './database.js';
import type { PaymentRef } from './values.js';

/**
 * Who shows availability hears by LISTEN/NOTIFY which products to read again. Never in a stock
 * transaction: a NOTIFY takes one lock for the whole cluster until its commit is over (1,270 claims a
 * second became 550). The process that changed stock says so afterwards, on a connection of its own.
 * A notification may be lost, by a crash or with Postgres: listeners read again by themselves, too.
 */
const channel = 'tahan_changes';

/** What has changed, as far as the caller knows: of holds and payments the statement finds the products. */
export interface Changed {
  skus?: string[];
  holds?: string[];
  payments?: PaymentRef[];
}

/** Changes of a product within this time are told once. */
const joinMs = 100;
/** While Postgres hangs; more is forgotten. */
const waitAtMost = 10_000;
/** 100 SKUs of 64 characters stay under the 8,000 bytes of a notification. */
const skusAtOnce = 100;

/** Tells listeners of changes that are committed. It never delays its caller, and never fails. */
export class Announcer {
  readonly #calls: Calls;
  #waiting = nothing();
  #timer: NodeJS.Timeout | undefined;
  #telling: Promise<void> | undefined;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  add({ skus = [], holds = [], payments = [] }: Changed): void {
    const waiting = this.#waiting;
    if (waiting.skus.size + waiting.holds.size + waiting.payments.size > waitAtMost) return;
    for (const sku of skus) waiting.skus.add(sku);
    for (const id of holds) waiting.holds.add(id);
    for (const one of payments) waiting.payments.set(`${one.provider} ${one.paymentId}`, one);
    this.#later();
  }

  /** One statement at a time: what comes meanwhile goes with the next. */
  #later(): void {
    if (this.#timer !== undefined || this.#telling !== undefined) return;
    this.#timer = setTimeout(() => this.#tell(), joinMs);
  }

  #tell(): void {
    this.#timer = undefined;
    const { skus, holds, payments } = this.#waiting;
    this.#waiting = nothing();
    const refs = [...payments.values()];
    this.#telling = this.#calls
      .rows({
        name: 'announce',
        text: `
          select pg_notify('${channel}', string_agg(c.sku, ' '))
          from (
            select s.sku, (row_number() over (order by s.sku) - 1) / ${skusAtOnce} as part
            from (
              select w.sku collate "C" as sku from unnest($1::text[]) as w (sku)
              union
              select l.sku from tahan.hold_lines l where l.hold_id = any ($2::uuid[])
              union
              select l.sku
              from unnest($3::text[], $4::text[]) as r (provider, payment_id)
              join tahan.payments p on p.provider = r.provider and p.payment_id = r.payment_id
              join tahan.hold_lines l on l.hold_id = p.hold_id) s) c
          group by c.part`,
        values: [
          [...skus],
          [...holds],
          refs.map(({ provider }) => provider),
          refs.map(({ paymentId }) => paymentId),
        ],
      })
      .then(
        () => {},
        () => {}, // lost, as promised
      )
      .finally(() => {
        this.#telling = undefined;
        const { skus: more, holds: others, payments: last } = this.#waiting;
        if (more.size + others.size + last.size > 0) this.#later();
      });
  }

  /** What waits is still told. */
  async close(): Promise<void> {
    while (this.#timer !== undefined || this.#telling !== undefined) {
      if (this.#timer !== undefined) {
        clearTimeout(this.#timer);
        this.#tell();
      }
      await this.#telling;
    }
    await this.#calls.close();
  }
}

function nothing() {
  return {
    skus: new Set<string>(),
    holds: new Set<string>(),
    payments: new Map<string, PaymentRef>(),
  };
}

export interface ChangeHandlers {
  changed(skus: string[]): void;
  /** Listening, for the first time or again: whatever was changed before was not heard. */
  listening(): void;
}

const firstPauseMs = 250;
const longestPauseMs = 5000;
/** A network that is gone says nothing: the connection is asked now and then. */
const askEveryMs = 30_000;
const askWithinMs = 5000;

/**
 * Listens on one connection until it is stopped, and connects again, with pauses that grow, when
 * Postgres went away.
 */
export class Listener {
  readonly #config: pg.ClientConfig;
  readonly #handlers: ChangeHandlers;
  readonly #stopped = new AbortController();
  #client: pg.Client | undefined;

  constructor(config: pg.ClientConfig, handlers: ChangeHandlers) {
    this.#config = config;
    this.#handlers = handlers;
    void this.#run();
  }

  /** Safe to call at any time; nothing is handled afterwards. */
  stop(): void {
    this.#stopped.abort();
    if (this.#client !== undefined) hangUp(this.#client);
  }

  async #run(): Promise<void> {
    let pauseMs = firstPauseMs;
    while (!this.#stopped.signal.aborted) {
      const client = new pg.Client(this.#config);
      this.#client = client;
      const ended = new Promise<void>((resolve) => client.once('end', resolve));
      client.on('error', () => {});
      client.on('notification', ({ payload }) => {
        if (!this.#stopped.signal.aborted) this.#handlers.changed((payload ?? '').split(' '));
      });
      try {
        await client.connect();
        await client.query(`listen ${channel}`);
        pauseMs = firstPauseMs;
        if (!this.#stopped.signal.aborted) this.#handlers.listening();
        await this.#whileItAnswers(client, ended);
      } catch {
        // the next one, after the pause
      }
      hangUp(client);
      await this.#pause(pauseMs);
      pauseMs = Math.min(longestPauseMs, 2 * pauseMs);
    }
  }

  async #whileItAnswers(client: pg.Client, ended: Promise<void>): Promise<void> {
    const ask = setInterval(() => {
      const late = setTimeout(() => hangUp(client), askWithinMs);
      client.query('select 1').then(
        () => clearTimeout(late),
        () => clearTimeout(late),
      );
    }, askEveryMs);
    await ended;
    clearInterval(ask);
  }

  #pause(ms: number): Promise<void> {
    const { signal } = this.#stopped;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      signal.addEventListener('abort', done, { once: true });
      function done(): void {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      }
    });
  }
}

/** Closing politely would wait for a server that may not be there. */
function hangUp(client: pg.Client): void {
  (
    client as unknown as { connection: { stream: { destroy(): void } } }
  ).connection.stream.destroy();
}
