import { afterEach, describe, expect, it, vi } from 'vitest';
import { events, Watcher } from '../../api/watch.js';
import type { Calls, Database } from '../../db/database.js';
import type { Availability as Read } from '../../db/readAvailability.js';
import { until } from '../workflows/engine.js';
import { atOnce, sharedService } from './service.js';
import type { Availability, Page } from './service.js';
import { openStream } from './streams.js';
import type { OpenStream } from './streams.js';

/** How often the API has asked Postgres for availability. */
const reads = { availability: 0 };

function counted(db: Database): Database {
  const calls: Partial<Calls> = {
    lockBudgetMs: db.reads.lockBudgetMs,
    rows: (...of) => db.reads.rows(...of),
    answer: (query, limits) => {
      if (query.name === 'availability') reads.availability += 1;
      return db.reads.answer(query, limits);
    },
  };
  return { ...db, reads: calls as Calls };
}

const service = sharedService({ parts: ({ db }) => ({ db: counted(db) }) });
const open: OpenStream[] = [];
const operator = () => ({ key: service.operatorKey });

async function stream(skus: string[], key = service.shopKey): Promise<OpenStream> {
  const opened = await openStream(service.url(), key, skus);
  open.push(opened);
  return opened;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.leave()));
  // No stream, no connection that listens.
  await until('nobody listens', async () => (await listeners()).length === 0);
});

function listeners() {
  return service.shop.query(
    `select pid from pg_stat_activity where datname = current_database() and query ~ '^listen '`,
  );
}

async function shown(sku: string, key = service.shopKey): Promise<Availability> {
  return (await service.get<Availability>(`/v1/products/${sku}/availability`, { key })).body;
}

async function restock(sku: string, quantity = 1) {
  const path = `/v1/products/${sku}/bins/b1/restock`;
  const answer = await service.post(path, { quantity, reason: 'truck' }, operator());
  expect(answer.status, answer.text).toBe(200);
}

describe('availability', () => {
  it('B06, R12: bins of 4, 3 and 3 with four open holds of 1 and twenty old ledger rows show 6, not a multiple; 7 are refused, 6 are sold, and 0 are left', async () => {
    const sku = await service.product([4, 3, 3]);
    const path = (bin: number) => `/v1/products/${sku}/bins/b${bin}/adjustments`;
    for (let row = 0; row < 20; row += 1) {
      const delta = row % 2 === 0 ? 1 : -1;
      await service.post(path((row % 3) + 1), { delta, reason: 'count' }, operator());
      await service.post(path((row % 3) + 1), { delta: -delta, reason: 'count' }, operator());
    }
    await atOnce(4, () => service.hold({ [sku]: 1 }));
    expect(await shown(sku)).toMatchObject({ available: 6, sellable: 6, held: 4, total: 10 });
    const refused = await service.checkout({ [sku]: 7 });
    expect([refused.status, refused.body.shortfalls]).toEqual([
      409,
      [{ sku, requested: 7, available: 6 }],
    ]);
    expect((await service.checkout({ [sku]: 6 })).status).toBe(201);
    expect(await shown(sku)).toMatchObject({ available: 0, held: 10, level: 'sold_out' });
  });

  it('R36: an operator sees each bin, which add up to the product; a shop sees none', async () => {
    const sku = await service.product([5, 1, 0], { safety_stock: [2, 3, 0] });
    const overdue = await service.shop.hold({ [sku]: 2 }, { holdSeconds: 60 });
    await service.shop.hold({ [sku]: 1 }, { holdSeconds: 1800 });
    await service.shop.shiftClock(61_000);
    const { bins, ...all } = await shown(sku, service.operatorKey);
    expect(bins).toEqual([
      { code: 'b1', available: 4, sellable: 2, held: 1, sold: 0, total: 5, safety_stock: 2 },
      { code: 'b2', available: 1, sellable: 0, held: 0, sold: 0, total: 1, safety_stock: 3 },
      { code: 'b3', available: 0, sellable: 0, held: 0, sold: 0, total: 0, safety_stock: 0 },
    ]);
    for (const name of ['available', 'sellable', 'held', 'sold', 'total', 'safety_stock'] as const)
      expect(all[name]).toBe(bins!.reduce((sum, bin) => sum + bin[name], 0));
    expect(await shown(sku)).not.toHaveProperty('bins');
    expect((await shown(await service.product([]), service.operatorKey)).bins).toEqual([]);
    expect((await service.get(`/v1/holds/${overdue}`)).body.status).toBe('HELD');
  });

  it('R07: the next release is the end of the next open hold: not of an overdue one, and not of one that is paid', async () => {
    const sku = await service.product([5]);
    const held = (holdSeconds: number) => service.shop.hold({ [sku]: 1 }, { holdSeconds });
    const [, paid, open_] = [await held(60), await held(120), await held(180)];
    const ends = async (id: string) => (await service.get(`/v1/holds/${id}`)).body.expires_at;
    await service.shop.pay(paid);
    await service.shop.shiftClock(61_000);
    const now = await shown(sku);
    expect(now).toMatchObject({ available: 3, held: 2 });
    expect(now.next_release_at).toBe(await ends(open_));
    await service.shop.shiftClock(181_000);
    expect(await shown(sku)).toMatchObject({ available: 4, held: 1, next_release_at: null });
  });
});

describe('display: bands', () => {
  const bands = { display: 'bands' };
  const noNumber = {
    ...{ available: null, sellable: null, held: null, sold: null, total: null },
    safety_stock: null,
  };

  it('S25: a shop key is told a level and no number, of one product, of many and in a stream; an operator is told all', async () => {
    const sku = await service.product([12], bands);
    const exact = await service.product([3]);
    const both = async (key: string) => {
      const body = { skus: [sku, exact] };
      const answer = await service.post<Page<Availability>>('/v1/availability', body, { key });
      return answer.body.items.find((one) => one.sku === sku);
    };
    const [shop, all] = [await stream([sku, exact]), await stream([sku], service.operatorKey)];
    const everywhere = async (state: object, numbers: object) => {
      await shop.shows(sku, state);
      await all.shows(sku, numbers);
      expect([await shown(sku), await both(service.shopKey), shop.latest(sku)]).toEqual(
        Array(3).fill({
          ...{ sku, active: true, display: 'bands', next_release_at: null },
          ...{ ...noNumber, ...state, as_of: expect.any(String) as string },
        }),
      );
      for (const one of [
        await shown(sku, service.operatorKey),
        await both(service.operatorKey),
        all.latest(sku),
      ])
        expect(one).toMatchObject({ ...numbers, level: (state as { level: string }).level });
    };
    await everywhere({ level: 'in_stock' }, { sellable: 12, available: 12 });
    await service.shop.hold({ [sku]: 1 });
    service.shop.db.announce({ skus: [sku] });
    await everywhere({ level: 'in_stock' }, { sellable: 11, held: 1 });
    // A change within a level is no event: their times alone would tell each sale.
    expect(shop.events.filter((one) => one.sku === sku)).toHaveLength(1);
    await service.shop.hold({ [sku]: 1 });
    service.shop.db.announce({ skus: [sku] });
    await everywhere({ level: 'low' }, { sellable: 10, held: 2 });
    expect(shop.latest(exact)).toMatchObject({ display: 'exact', sellable: 3, level: 'low' });
    expect(shop.events.filter((one) => one.sku === sku)).toHaveLength(2);
  });

  it('a shop is told when the next hold ends once it is sold out, where a buyer may wait for it', async () => {
    const sku = await service.product([2], bands);
    const id = await service.shop.hold({ [sku]: 1 });
    expect(await shown(sku)).toMatchObject({ level: 'low', next_release_at: null });
    await service.shop.hold({ [sku]: 1 });
    const { expires_at } = (await service.get(`/v1/holds/${id}`)).body;
    expect(await shown(sku)).toMatchObject({ level: 'sold_out', next_release_at: expires_at });
  });

  it('S25: a refused checkout names what is left, since its buyer must know; with a limit per buyer nobody asks for the number of all', async () => {
    const sku = await service.product([20], { ...bands, per_buyer_limit: 4 });
    const probe = await service.checkout({ [sku]: 10_000 });
    expect([probe.status, probe.body.code]).toEqual([409, 'BUYER_LIMIT_EXCEEDED']);
    expect(probe.body).not.toHaveProperty('shortfalls');
    await service.shop.query('update tahan.products set per_buyer_limit = null where sku = $1', [
      sku,
    ]);
    await service.shop.hold({ [sku]: 18 });
    const { body } = await service.checkout({ [sku]: 3 });
    expect(body.shortfalls).toEqual([{ sku, requested: 3, available: 2 }]);
  });
});

describe('the stream of availability', () => {
  it('R12: begins with each product as it is, and tells every kind of change by whoever made it', async () => {
    const [sku, other] = [await service.product([5]), await service.product([2])];
    const one = await stream([sku, other, sku]);
    await one.shows(sku, { available: 5 });
    await one.shows(other, { available: 2 });
    expect(one.text()).toMatch(/^retry: \d{4}\n\n/);
    expect(one.events[0]).toEqual({
      ...(await shown(one.events[0]!.sku)),
      as_of: one.events[0]!.as_of,
    });
    const first = await service.hold({ [sku]: 1, [other]: 1 });
    await one.shows(sku, { available: 4, held: 1, next_release_at: first.expires_at });
    await one.shows(other, { available: 1, held: 1 });
    const extended = await service.post(`/v1/holds/${first.id}/extend`, { seconds: 60 });
    await one.shows(sku, { next_release_at: extended.body.expires_at });
    await service.paid(first.id);
    await one.shows(sku, { available: 4, sold: 1, next_release_at: null });
    const second = await service.hold({ [sku]: 4 });
    await one.shows(sku, { available: 0, level: 'sold_out' });
    await service.post(`/v1/holds/${second.id}/cancel`, { reason: 'no' });
    await one.shows(sku, { available: 4, level: 'low' });
    await restock(sku, 9);
    await one.shows(sku, { available: 13, level: 'in_stock' });
    const bin = `/v1/products/${sku}/bins/b1`;
    await service.post(`${bin}/adjustments`, { delta: -3, reason: 'broken' }, operator());
    await one.shows(sku, { available: 10, sellable: 10 });
    await service.put(bin, { safety_stock: 4, reason: 'breakage' });
    await one.shows(sku, { sellable: 6, safety_stock: 4 });
    await service.put(`/v1/products/${sku}`, { active: false, reason: 'over' });
    await one.shows(sku, { active: false });
    const short = await service.hold({ [other]: 1 }, { fields: { hold_seconds: 1 } });
    await one.shows(other, { available: 0 });
    await service.becomes(short.id, 'EXPIRED');
    await one.shows(other, { available: 1, held: 0 });
  });

  it('R13: a buyer who was told sold out hears when the units of a late hold are free, by time alone and with nobody to announce it', async () => {
    const sku = await service.product([1]);
    const held = await service.shop.hold({ [sku]: 1 }, { holdSeconds: 1 });
    const one = await stream([sku]);
    await one.shows(sku, { level: 'sold_out' });
    await one.shows(sku, { available: 1, held: 0 });
    expect((await service.get(`/v1/holds/${held}`)).body.status).toBe('HELD');
    expect(one.events).toHaveLength(2);
  });

  it('200 streams of one product and 50 changes within a second: some 10 reads, one listener, and every stream ends with the true number', async () => {
    const sku = await service.product([1000]);
    const streams = await atOnce(200, () => stream([sku]));
    await Promise.all(streams.map((one) => one.shows(sku, { available: 1000 })));
    await until('one listens', async () => (await listeners()).length === 1);
    const [before, began] = [reads.availability, performance.now()];
    const changes: Promise<void>[] = [];
    for (let i = 0; i < 50; i += 1) {
      changes.push(restock(sku));
      await new Promise((next) => setTimeout(next, 20));
    }
    await Promise.all(changes);
    await Promise.all(streams.map((one) => one.shows(sku, { available: 1050, total: 1050 })));
    const seconds = (performance.now() - began) / 1000;
    const made = reads.availability - before;
    expect(made).toBeLessThanOrEqual(10 * seconds + 2);
    expect(made).toBeGreaterThan(2);
    for (const { events: told } of streams) {
      expect(told.length).toBeLessThanOrEqual(made + 1);
      const counts = told.map(({ available }) => available!);
      expect(counts).toEqual([...counts].sort((a, b) => a - b));
    }
    process.stderr.write(
      `streams: 200, changes: 50 in ${seconds.toFixed(1)} s, reads: ${made}, events: ${streams[0]!.events.length}\n`,
    );
  });

  it('goes on when Postgres has ended its connection, and tells what was changed meanwhile', async () => {
    const sku = await service.product([5]);
    const one = await stream([sku]);
    await one.shows(sku, { available: 5 });
    await until('somebody listens', async () => (await listeners()).length === 1);
    const [{ pid }] = (await listeners()) as [{ pid: number }];
    await service.shop.query('select pg_terminate_backend($1)', [pid]);
    await until('it is ended', async () => (await listeners()).every((now) => now['pid'] !== pid));
    await service.shop.hold({ [sku]: 2 }); // announced by nobody
    await one.shows(sku, { available: 3 });
    await until('somebody listens again', async () => (await listeners()).length === 1);
    await restock(sku);
    await one.shows(sku, { available: 4 });
    expect(one.events.map(({ available }) => available)).toEqual([5, 3, 4]);
  });

  it('what it can not do is refused: an unknown product, no product, 51 of them, a shop without a key', async () => {
    const sku = await service.product([1]);
    const path = (skus: string) => `/v1/availability/stream?skus=${skus}`;
    const many = (count: number) => Array.from({ length: count }, (_, i) => `s${i}`).join(',');
    for (const [asked, status, code] of [
      [path(`${sku},none`), 404, 'PRODUCT_NOT_FOUND'],
      [path(''), 422, 'INVALID_SKU'],
      [path(`${sku},`), 422, 'INVALID_SKU'],
      [path('a%20b'), 422, 'INVALID_SKU'],
      [path(many(51)), 400, 'INVALID_REQUEST'],
      [path(many(50)), 404, 'PRODUCT_NOT_FOUND'],
      ['/v1/availability/stream', 400, 'INVALID_REQUEST'],
    ] as const) {
      const answer = await service.get(asked);
      expect([asked, answer.status, answer.body.code]).toEqual([asked, status, code]);
    }
    expect((await service.get(path(sku), { key: null })).status).toBe(401);
    const head = await fetch(`${service.url()}${path(sku)}`, {
      method: 'HEAD',
      headers: { authorization: `Bearer ${service.shopKey}` },
    });
    expect([head.status, await head.text()]).toEqual([200, '']);
  });

  it('a process takes so many streams: the next is 503 STREAMS_BUSY, until a reader has gone', async () => {
    await service.restartApi({ streams: 2 });
    try {
      const sku = await service.product([1]);
      const [first] = [await stream([sku]), await stream([sku])];
      const path = `/v1/availability/stream?skus=${sku}`;
      const refused = await service.get(path);
      expect([refused.status, refused.body.code]).toEqual([503, 'STREAMS_BUSY']);
      expect(refused.headers['retry-after']).toBe('5');
      await first.leave();
      let last: OpenStream | undefined;
      await until('there is room', async () => {
        last = await stream([sku]).catch(() => undefined);
        return last !== undefined;
      });
      await last!.shows(sku, { available: 1 });
      expect((await service.get(path)).status).toBe(503);
    } finally {
      await Promise.all(open.splice(0).map((one) => one.leave()));
      await service.restartApi();
    }
  });
});

describe('one reader of the stream', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  const state = (available: number): Read => ({
    ...{ sku: 'a', active: true, display: 'exact', available, sellable: available, held: 0 },
    ...{ sold: 0, total: 9, safetyStock: 0, nextReleaseAt: null, bins: null },
    asOf: new Date().toISOString(),
  });

  function reader(write: (piece: string) => Promise<void>, mayGoOn = true) {
    const left: string[] = [];
    const watcher = new Watcher(['a'], 'shop', () => left.push('left'));
    const gone = new AbortController();
    const over = events(watcher, {
      write,
      gone: gone.signal,
      mayGoOn: () => Promise.resolve(mayGoOn),
    }).then(
      () => 'ended',
      (error: Error) => error.message,
    );
    return { watcher, gone, over, left };
  }

  it('who reads slowly is told the newest state, not each in between', async () => {
    const told: string[] = [];
    let goOn = () => {};
    const { watcher, gone, over, left } = reader((piece) => {
      told.push(...[...piece.matchAll(/"available":(\d+)/g)].map(([, count]) => count!));
      return new Promise((resolve) => (goOn = resolve));
    });
    watcher.hear(state(1));
    goOn();
    await until('the first is written', () => told.length === 1);
    for (const available of [2, 3, 3, 4]) watcher.hear(state(available));
    goOn();
    await until('the next is written', () => told.length === 2);
    expect(told).toEqual(['1', '4']);
    gone.abort();
    goOn();
    expect([await over, left]).toEqual(['ended', ['left']]);
  });

  it('a quiet stream says so every 15 s; who takes nothing for 20 s is cut and frees its place', async () => {
    vi.useFakeTimers();
    const told: string[] = [];
    let stuck = false;
    const { watcher, over, left } = reader((piece) => {
      told.push(piece);
      return stuck ? new Promise(() => {}) : Promise.resolve();
    });
    watcher.hear(state(1));
    await vi.advanceTimersByTimeAsync(44_000);
    expect(told.map((piece) => piece.split('\n')[0]!.replace(/\d+/, 'N'))).toEqual([
      ...['retry: N', 'event: availability', ':', ':'],
    ]);
    stuck = true;
    watcher.hear(state(2));
    await vi.advanceTimersByTimeAsync(19_000);
    expect(left).toEqual([]);
    await vi.advanceTimersByTimeAsync(2000);
    expect([await over, left]).toEqual(['the reader takes nothing', ['left']]);
  });

  it('S20: a key that was revoked ends its stream with the next beat', async () => {
    vi.useFakeTimers();
    const { over, left } = reader(() => Promise.resolve(), false);
    await vi.advanceTimersByTimeAsync(14_000);
    expect(left).toEqual([]);
    await vi.advanceTimersByTimeAsync(2000);
    expect([await over, left]).toEqual(['ended', ['left']]);
  });
});
