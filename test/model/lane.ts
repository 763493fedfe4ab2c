import pg from 'pg';
import type { QueryConfig } from 'pg';
import type { ClaimRequest } from '../../db/claim.js';
import { Calls } from '../../db/database.js';
import type { Database } from '../../db/database.js';
import { DatabaseFault } from '../../db/faults.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import type { Line, PaymentRef } from '../../db/values.js';

/** A claim of lines: carts are not played here. */
export type Listed = ClaimRequest & { lines: Line[] };

/** What was asked. Everything the oracle must know of a call beside its answer and its times. */
export type Ask =
  | { what: 'claim'; request: Listed; drain?: boolean }
  | { what: 'pay'; event: PaymentEvent }
  | { what: 'confirm'; holdId: string; payment: PaymentRef }
  | { what: 'expire'; holdId: string }
  | { what: 'cancel'; holdId: string }
  | { what: 'extend'; holdId: string; seconds: number; requestId: string }
  | { what: 'stock'; sku: string; bin: string; delta: number; requestId: string };

export type Answer = { outcome: string } & Record<string, unknown>;

/**
 * One call as its caller saw it, with instants of the history's own clock in microseconds: `began`
 * just before the function, `ended` just after it, and `known`, when its commit was certainly over.
 */
export interface Call {
  ask: Ask;
  answer?: Answer;
  fault?: string;
  began: number;
  ended: number;
  known: number;
  /** It was seen waiting for the hold's row before the hold's end: the money is in time. */
  mustBeInTime?: boolean;
}

interface Stamped {
  call: Call;
  sent: number;
  received: number;
  arrived: number;
}

/**
 * What the histories need of a database. The clock of a lane is the real one plus what its sequence
 * says: a sequence is seen by everybody at once, in a transaction or not. It only goes forward.
 */
const preparation = `
  create function tahan.model_shift(p_lane text) returns bigint language sql volatile as
    $$ select coalesce(pg_sequence_last_value(to_regclass('tahan.' || p_lane)), 0) $$;
  create or replace function tahan.tahan_clock() returns timestamptz language sql volatile as
    $$ select clock_timestamp() + tahan.model_shift(current_setting('application_name')) * interval '1 microsecond' $$;
  create function tahan.model_us(p_at timestamptz) returns bigint language sql immutable as
    $$ select (extract(epoch from p_at) * 1000000)::bigint $$;
  -- The clock of a lane goes to this instant, unless it is there already. A session's lock, let go at
  -- once: the calls that share the clock must not wait for one another.
  create function tahan.model_jump(p_lane text, p_to bigint) returns void language plpgsql volatile security definer as $$
  declare
    v_clock regclass := ('tahan.' || p_lane)::regclass;
    v_shift bigint;
  begin
    perform pg_advisory_lock(4712, v_clock::oid::integer);
    v_shift := p_to - tahan.model_us(clock_timestamp());
    if v_shift > tahan.model_shift(p_lane) then
      perform setval(v_clock, v_shift);
    end if;
    perform pg_advisory_unlock(4712, v_clock::oid::integer);
  end $$;
  -- Waits for an instant of the lane's clock; one that is far away is brought near first. So calls
  -- that name instants around a deadline really run around it, on a machine however slow.
  create function tahan.model_at(p_at bigint) returns bigint language plpgsql volatile as $$
  declare
    v_left bigint := p_at - tahan.model_us(tahan.tahan_clock());
  begin
    if v_left > 8000 then
      perform tahan.model_jump(current_setting('application_name'), p_at - 3000);
      v_left := 3000;
    end if;
    if v_left > 1500 then
      perform pg_sleep((v_left - 1000) / 1000000.0);
    end if;
    while tahan.model_us(tahan.tahan_clock()) < p_at loop end loop;
    return tahan.model_us(tahan.tahan_clock());
  end $$;`;

/** Makes a migrated database ready for histories on so many lanes. Detects a deadlock soon. */
export async function prepare(url: string, lanes: number): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(preparation);
    for (let lane = 1; lane <= lanes; lane += 1) {
      await client.query(`create sequence tahan.model_clock_${lane} minvalue 0`);
      await client.query(`select setval('tahan.model_clock_${lane}', 1)`);
      await client.query(`grant select on tahan.model_clock_${lane} to tahan_app`);
    }
    const { rows } = await client.query<{ name: string }>('select current_database() as name');
    await client.query(`alter database "${rows[0]!.name}" set deadlock_timeout = '200ms'`);
  } finally {
    await client.end();
  }
}

/** Connections for one history at a time, with a clock that no other lane sees. */
export class Lane {
  readonly name: string;
  readonly #calls: Calls;
  readonly #owner: pg.Pool;
  #stamped: Stamped[] = [];
  #order = 0;
  #seats = 0;
  #taken = 0;
  #waiting: (() => void)[] = [];
  /** The newest instant that anyone has seen on this lane's clock. */
  latest = 0;

  constructor(url: string, lane: number) {
    this.name = `model_clock_${lane}`;
    const options = { url, takeAppRole: true, connectWithinMs: 60_000, applicationName: this.name };
    // A budget that a machine under load does not use up: here a wait that ends is a defect.
    this.#calls = new Calls(options, 32, 15_000, 30_000);
    this.#owner = new pg.Pool({ connectionString: url, max: 4, application_name: this.name });
    this.#owner.on('error', () => {});
    // A connection that is closing may still hear that its database is dropped.
    this.#owner.on('connect', (client) => client.on('error', () => {}));
  }

  /** A history begins, with so many connections. */
  async begin(connections: number): Promise<void> {
    this.#stamped = [];
    this.#order = 0;
    this.#seats = connections;
    this.latest = await this.now();
  }

  /**
   * Runs one call of the contract through its own file in db/, at an instant of the lane's clock when
   * one is given, and keeps what came of it. Its statement gets the instants around it, nothing else.
   */
  async call(ask: Ask, work: (db: Database) => Promise<unknown>, at?: number): Promise<Call> {
    const call: Call = { ask, began: 0, ended: 0, known: 0 };
    const stamped: Stamped = { call, sent: 0, received: Infinity, arrived: Infinity };
    const calls = {
      lockBudgetMs: this.#calls.lockBudgetMs,
      answer: async (query: QueryConfig) => {
        const values = [
          ...((query.values as unknown[]) ?? []),
          at === undefined ? null : Math.round(at),
        ];
        const expression = /^select (.+) as answer$/s.exec(query.text)?.[1];
        if (expression === undefined) throw new Error(`can't time: ${query.text}`);
        const [row] = await this.#calls.rows<{ answer: Answer } & Record<string, string>>({
          name: `timed ${query.name}`,
          text: `with moment as materialized (
              select tahan.model_us(tahan.tahan_clock()) as arrived, tahan.model_at($${values.length}::bigint) as began)
            select moment.arrived, coalesce(moment.began, moment.arrived) as began, ${expression} as answer,
              tahan.model_us(tahan.tahan_clock()) as ended
            from moment`,
          values,
        });
        stamped.arrived = Number(row!['arrived']);
        call.began = Number(row!['began']);
        call.ended = Number(row!['ended']);
        return row!.answer;
      },
    } as unknown as Calls;
    const leave = await this.#enter();
    stamped.sent = ++this.#order;
    this.#stamped.push(stamped);
    try {
      call.answer = (await work({
        claims: calls,
        changes: calls,
        reads: calls,
        announce: () => {},
        listen: () => ({ stop() {} }),
        close: () => Promise.resolve(),
      })) as Answer;
      this.latest = Math.max(this.latest, call.ended);
    } catch (error) {
      call.fault =
        error instanceof DatabaseFault ? error.code : String((error as Error).stack ?? error);
    }
    stamped.received = ++this.#order;
    leave();
    return call;
  }

  /** The history is over: its calls, with the instants at which their commits were certainly over. */
  async end(): Promise<Call[]> {
    const last = await this.now();
    const bySent = [...this.#stamped].sort((a, b) => a.sent - b.sent);
    // earliest[i]: the earliest arrival among the calls sent as i-th or later.
    const earliest = bySent.map((stamped) => stamped.arrived);
    for (let i = earliest.length - 2; i >= 0; i -= 1) {
      earliest[i] = Math.min(earliest[i]!, earliest[i + 1]!);
    }
    for (const { call, received } of this.#stamped) {
      const next = bySent.findIndex((other) => other.sent > received);
      call.known = Math.min(last, next < 0 ? last : earliest[next]!);
    }
    return this.#stamped.map(({ call }) => call);
  }

  /** By the owner's pool, or by a connection that is in a transaction anyway. */
  async now(by: pg.Pool | pg.PoolClient = this.#owner): Promise<number> {
    const { rows } = await by.query<{ now: string }>(
      'select tahan.model_us(tahan.tahan_clock()) as now',
    );
    return Number(rows[0]!.now);
  }

  async jump(to: number, by: pg.Pool | pg.PoolClient = this.#owner): Promise<void> {
    await by.query('select tahan.model_jump($1, $2)', [this.name, Math.round(to)]);
    this.latest = Math.max(this.latest, to);
  }

  async query<T extends object>(text: string, values: unknown[] = []): Promise<T[]> {
    return (await this.#owner.query(text, values)).rows as T[];
  }

  /** Somebody else's transaction, on a connection of the owner's. */
  async other<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#owner.connect();
    try {
      await client.query('begin');
      const result = await work(client);
      await client.query('commit');
      return result;
    } finally {
      client.release();
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#calls.close(), this.#owner.end()]);
  }

  async #enter(): Promise<() => void> {
    if (this.#taken >= this.#seats) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#taken += 1;
    return () => {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#taken -= 1;
    };
  }
}
