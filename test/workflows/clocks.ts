import { expect } from 'vitest';
import { createActivities } from '../../activities/index.js';
import type { Activities } from '../../activities/index.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { counts } from '../db/books.js';
import { endOf, engine, until } from './engine.js';
import type { Engine } from './engine.js';
import { cancel, claimAgain } from './talk.js';
import type { HoldRequest } from '../../workflows/contract.js';

/** Shops behind one engine, each with a database, and so with a clock, of its own. */
export interface Clocks {
  engine: Engine;
  shops: Shop[];
  /** What expire answered for a hold, call by call. */
  expiries: Map<string, string[]>;
  /** Which shop's database a hold is in; to be said before it is claimed. */
  placeOf: Map<string, Shop>;
  close(): Promise<void>;
}

export async function openClocks(count: number): Promise<Clocks> {
  const few = { claims: 2, changes: 2, reads: 1 };
  const shops = await Promise.all(
    Array.from({ length: count }, () => openShop(undefined, { connections: few })),
  );
  const expiries = new Map<string, string[]>();
  const placeOf = new Map<string, Shop>();
  const activities = new Map(shops.map((shop) => [shop, createActivities(shop.db)]));
  const at = (holdId: string): Activities => activities.get(placeOf.get(holdId)!)!;
  const temporal = await engine({
    // Nobody pays late here.
    ...createActivities(shops[0]!.db),
    claim: (request) => at(request.holdId).claim(request),
    confirm: (holdId, payment) => at(holdId).confirm(holdId, payment),
    cancel: (holdId, ...rest) => at(holdId).cancel(holdId, ...rest),
    extend: (holdId, ...rest) => at(holdId).extend(holdId, ...rest),
    recordPayment: (event) => at(event.holdId!).recordPayment(event),
    async expire(holdId) {
      const answer = await at(holdId).expire(holdId);
      expiries.set(holdId, [...(expiries.get(holdId) ?? []), answer.outcome]);
      return answer;
    },
  });
  await temporal.start();
  return {
    engine: temporal,
    shops,
    expiries,
    placeOf,
    async close() {
      await temporal.close();
      await Promise.all(shops.map((shop) => shop.close()));
    },
  };
}

/** What a hold that ended looks like: `late` is closed_at - expires_at in ms, by the clock of Postgres. */
export interface End {
  id: string;
  status: string;
  late: number;
  by: string;
}

/** All units of a product, each in a hold of its own, and the clock then moved by so many ms. */
export class Stepped {
  sku = '';
  requests: HoldRequest[] = [];
  readonly #clocks: Clocks;
  readonly shop: Shop;
  readonly ms: number;

  constructor(clocks: Clocks, shop: Shop, ms: number) {
    this.#clocks = clocks;
    this.shop = shop;
    this.ms = ms;
  }

  /** On a machine so slow that a timer fires before the step, again, with twice the time. */
  async claim(count: number, holdSeconds: number): Promise<void> {
    this.sku = await this.shop.product([count]);
    this.requests = [];
    while (this.requests.length < count) {
      const ten = Array.from({ length: Math.min(10, count) }, () => this.#claimOne(holdSeconds));
      this.requests.push(...(await Promise.all(ten)));
    }
    await this.shop.shiftClock(this.ms);
    if (this.expiryCalls().every((calls) => calls === 0)) return;
    await this.shop.shiftClock(0);
    await this.claim(count, 2 * holdSeconds);
  }

  async #claimOne(holdSeconds: number): Promise<HoldRequest> {
    const claimDeadline = await this.shop.now(60_000);
    const request = await this.shop.request({ [this.sku]: 1 }, { claimDeadline, holdSeconds });
    const wanted = { ...request, indexed: true };
    this.#clocks.placeOf.set(wanted.holdId, this.shop);
    // A busy machine may answer late; the same key is asked again, as a shop does.
    let sent = await claimAgain(this.#clocks.engine, wanted);
    for (let tries = 1; sent.outcome === 'NO_ANSWER' && tries < 5; tries += 1)
      sent = await claimAgain(this.#clocks.engine, wanted);
    expect(sent).toMatchObject({ answer: { outcome: 'HELD' } });
    return wanted;
  }

  expiryCalls(): number[] {
    return this.requests.map(({ holdId }) => this.#clocks.expiries.get(holdId)?.length ?? 0);
  }

  /** Waits until every timer has fired and expire has answered: how many were told NOT_DUE. */
  async notDue(withinMs: number): Promise<number> {
    const asked = () => this.expiryCalls().every((calls) => calls > 0);
    await until('expire was asked for every hold', asked, withinMs);
    const told = ({ holdId }: HoldRequest) => this.#clocks.expiries.get(holdId)![0] === 'NOT_DUE';
    return this.requests.filter(told).length;
  }

  async ends(): Promise<End[]> {
    return this.shop.query<End>(
      `select h.id, h.status, (extract(epoch from h.closed_at - h.expires_at) * 1000)::float8 as late,
         coalesce(split_part(m.actor, ' ', 1), '') as by
       from tahan.holds h left join tahan.movements m on m.hold_id = h.id and m.type = 'release_reservation'
       where h.id = any ($1::uuid[])`,
      [this.requests.map(({ holdId }) => holdId)],
    );
  }

  /** Waits for the end of every hold, and of every workflow. */
  async allExpire(withinMs: number): Promise<End[]> {
    await until(
      `all holds have ended, the clock ${this.ms} ms off`,
      async () => (await this.ends()).every(({ status }) => status !== 'HELD'),
      withinMs,
    );
    const results = this.requests.map(({ holdId }) => endOf(this.#clocks.engine, holdId));
    expect(new Set((await Promise.all(results)).map(({ outcome }) => outcome))).toEqual(
      new Set(['EXPIRED']),
    );
    return this.ends();
  }

  /** One claim for so many units, by another buyer, past the workflows. */
  async take(units: number): Promise<string> {
    return (await this.shop.claim({ [this.sku]: units }, { holdSeconds: 1800 })).outcome;
  }

  counts() {
    return counts(this.shop, this.sku);
  }

  /** Says "cancel" to each workflow: it asks Postgres, which says how its hold has ended. */
  async wake(): Promise<string[]> {
    const sent = await Promise.all(
      this.requests.map((request) => cancel(this.#clocks.engine, request)),
    );
    return sent.map((one) => (one.outcome === 'ANSWERED' ? one.answer.outcome : one.outcome));
  }
}
