import pg from 'pg';
import type { QueryConfig } from 'pg';
import { Announcer, Listener } from './changes.js';
import type { Changed, ChangeHandlers } from './changes.js';
import { asFault, isConflict } from './sqlstate.js';
import { DatabaseFault } from './faults.js';

/**
 * The way to Postgres. Three pools, so that claims that wait for one bin can't keep a confirmation,
 * an expiry or a read out (with one pool of 16 an expiry of another product waited 4.7 s).
 */
export interface Database {
  /** Claims and carts, all that waits for a buyer at a checkout: at most 4 s of lock waits. Small: one hot bin serves fewer claims a second at 16 connections than at 4. */
  claims: Calls;
  /** Confirm, expire, cancel, extend, payments, stock: at most 5 s of lock waits. */
  changes: Calls;
  /** Reads never wait for a row. */
  reads: Calls;
  /** Tells whoever listens that stock has changed, a little later: nobody waits for it. Call it after the change. */
  announce(changed: Changed): void;
  /** Hears of changes, on a connection of its own, until it is stopped. */
  listen(handlers: ChangeHandlers): { stop(): void };
  close(): Promise<void>;
}

export interface DatabaseOptions {
  url: string;
  /** Set when `url` is the owner's: the connection then takes the app's role, which may only call functions and read. */
  takeAppRole?: boolean;
  connections?: { claims?: number; changes?: number; reads?: number };
  /** How long a call waits for a connection, in ms. */
  connectWithinMs?: number;
  /** The lock budget, in ms, before the caps of the pools: `stockLockTimeoutMs()`. */
  stockLockTimeoutMs?: number;
  applicationName?: string;
}

/**
 * TAHAN_STOCK_LOCK_TIMEOUT_SECONDS as milliseconds: 15 s by default, clamped to 1..120 (R25).
 * Something that is no number is refused, so that a typo does not become a silent default.
 */
export function stockLockTimeoutMs(env: NodeJS.ProcessEnv = process.env): number {
  const text = env['TAHAN_STOCK_LOCK_TIMEOUT_SECONDS'];
  if (text === undefined || text.trim() === '') return 15_000;
  const seconds = Number(text);
  if (!Number.isFinite(seconds)) {
    throw new Error(
      `TAHAN_STOCK_LOCK_TIMEOUT_SECONDS is "${text}"; it must be a number of seconds from 1 to 120`,
    );
  }
  return Math.round(Math.min(120, Math.max(1, seconds)) * 1000);
}

export function openDatabase(options: DatabaseOptions): Database {
  const budgetMs = options.stockLockTimeoutMs ?? stockLockTimeoutMs();
  const { claims = 4, changes = 4, reads = 4 } = options.connections ?? {};
  // A call over HTTP may wait 4 s for locks, an activity whose retries have no end 5 s: the API
  // answers by 5 s, and a pool must not be held for the 15 s (or 120) a psql session may want.
  const pools = {
    claims: new Calls(options, claims, Math.min(budgetMs, 4000), 5000),
    changes: new Calls(options, changes, Math.min(budgetMs, 5000), 6000),
    reads: new Calls(options, reads, 1000, 1500),
  };
  const announcer = new Announcer(new Calls(options, 1, 1000, 1500));
  return {
    ...pools,
    announce: (changed) => announcer.add(changed),
    listen: (handlers) => new Listener(connection(options), handlers),
    async close() {
      await Promise.all([announcer, ...Object.values(pools)].map((one) => one.close()));
    },
  };
}

/** How every connection is made: for each of them the same role, clock and manners. */
function connection(options: DatabaseOptions, settings: string[] = []) {
  return {
    connectionString: options.url,
    connectionTimeoutMillis: options.connectWithinMs ?? 1500,
    keepAlive: true,
    application_name: options.applicationName ?? 'tahan',
    options: [
      ...settings,
      // Else a database that writes its dates the German way made cursors that its own pages refused.
      '-c timezone=UTC',
      '-c datestyle=ISO',
      ...(options.takeAppRole ? ['-c role=tahan_app'] : []),
    ].join(' '),
  };
}

/** How often a call was repeated because of a deadlock or a serialization failure: 0 in every proof. */
export const conflicts = { repeated: 0 };

/** Killed, shut down, or idle for too long: SQLSTATEs after which Postgres closes the connection. */
const backendEnded = /^(57P0|25P0[34])/;

/** The client's socket, which `pg` keeps to itself: the only thing that ends a call on a dead network. */
interface Wired {
  connection: { stream: { destroy(): void } };
}

/** One pool with its bounds. Every call is one statement. */
export class Calls {
  readonly #pool: pg.Pool;
  /** What a function may spend on lock waits in all; passed to each call. */
  readonly lockBudgetMs: number;
  readonly #statementTimeoutMs: number;

  constructor(
    options: DatabaseOptions,
    max: number,
    lockBudgetMs: number,
    statementTimeoutMs: number,
  ) {
    this.lockBudgetMs = lockBudgetMs;
    this.#statementTimeoutMs = statementTimeoutMs;
    this.#pool = new pg.Pool({
      // On the connection, since a function can't set its own statement_timeout, and since the
      // database or the role may default to another isolation level.
      ...connection(options, [
        '-c default_transaction_isolation=read\\ committed',
        `-c statement_timeout=${statementTimeoutMs}`,
        '-c idle_in_transaction_session_timeout=10000',
      ]),
      max,
      idleTimeoutMillis: 30_000,
    });
    // Without a listener a killed backend ends the process (F42).
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  /** The one jsonb that a function of the contract answers with. */
  async answer<T>(query: QueryConfig, limits: { withinMs?: number | undefined } = {}): Promise<T> {
    const [row] = await this.rows<{ answer: T }>(query, limits);
    if (row === undefined) throw new Error(`${query.name ?? 'statement'} answered nothing`);
    return row.answer;
  }

  /**
   * Runs one statement and returns its rows, within `withinMs` or the statement timeout + 2 s.
   * A deadlock or serialization failure is repeated three times with jitter, and counted.
   * @throws DatabaseFault
   */
  async rows<T>(
    query: QueryConfig,
    { withinMs }: { withinMs?: number | undefined } = {},
  ): Promise<T[]> {
    const endsAt = Date.now() + Math.min(withinMs ?? Infinity, this.#statementTimeoutMs + 2000);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#once<T>(query, endsAt);
      } catch (error) {
        if (!isConflict(error) || attempt > 3 || Date.now() >= endsAt) throw asFault(error);
        conflicts.repeated += 1;
        await new Promise((resolve) => setTimeout(resolve, 5 + Math.random() * 20 * attempt));
      }
    }
  }

  async #once<T>(query: QueryConfig, endsAt: number): Promise<T[]> {
    const client = await this.#client(endsAt);
    let late = false;
    // statement_timeout can't reach a client whose network is gone, and query_timeout leaves the
    // backend running: only closing the socket ends both sides.
    const timer = setTimeout(
      () => {
        late = true;
        (client as unknown as Wired).connection.stream.destroy();
      },
      Math.max(1, endsAt - Date.now()),
    );
    try {
      const { rows } = await client.query(query);
      client.release();
      return rows as T[];
    } catch (error) {
      // An error with a SQLSTATE left the connection usable, unless it was the backend's last word; any
      // other one did not (F43). A dead connection in the pool fails the next call too (F42).
      const { code } = error as { code?: unknown };
      const usable =
        typeof code === 'string' && 'severity' in (error as object) && !backendEnded.test(code);
      client.release(usable ? undefined : true);
      if (late) throw unavailable('Postgres gave no answer in time', error);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #client(endsAt: number): Promise<pg.PoolClient> {
    const connecting = this.#pool.connect();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => {
          // Whoever comes too late gives the connection back at once.
          connecting.then(
            (client) => client.release(),
            () => {},
          );
          reject(unavailable('no connection to Postgres in time'));
        },
        Math.max(1, endsAt - Date.now()),
      );
    });
    try {
      return await Promise.race([connecting, late]);
    } catch (error) {
      if (error instanceof DatabaseFault) throw error;
      throw unavailable(`no connection to Postgres: ${(error as Error).message}`, error);
    } finally {
      clearTimeout(timer);
    }
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}

function unavailable(message: string, cause?: unknown): DatabaseFault {
  return new DatabaseFault('DATABASE_UNAVAILABLE', message, { cause });
}
