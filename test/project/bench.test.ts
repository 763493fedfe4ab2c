import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { brokenPromises, falselyRefused, freePeriods } from '../../bench/ledger.js';
import { arrive } from '../../bench/load/arrivals.js';
import { visit } from '../../bench/load/buyer.js';
import { Connections } from '../../bench/load/connections.js';
import type { Plan, Visit } from '../../bench/load/plan.js';
import { atLeast, atMost, percentile } from '../../bench/measure.js';

const never = new AbortController().signal;

const open: Plan = {
  ...{ port: 0, key: 'key', secret: 'whsec_AAAA', name: 'buyer', skus: ['HOT'] },
  arrivals: { kind: 'open', perSecond: 100, count: 10 },
  patienceMs: 5000,
};

const seen: Visit = {
  ...{ end: 'REFUSED', holdId: null, expiresMs: null, intendedMs: 0, payMs: null, paidMs: null },
  ...{ sentMs: 2000, decidedMs: 2100 },
};

describe('the load of the benches', () => {
  let server: Server | undefined;
  let shop: Connections | undefined;

  afterEach(() => {
    shop?.close();
    server?.close();
  });

  async function serve(
    answer: (req: IncomingMessage, res: ServerResponse, number: number) => void,
    most: number,
  ): Promise<Connections> {
    let number = 0;
    server = createServer((req, res) => answer(req, res, number++)).listen(0, '127.0.0.1');
    await new Promise((resolve) => server!.once('listening', resolve));
    return (shop = new Connections((server.address() as AddressInfo).port, most));
  }

  const answer = (res: ServerResponse, status: number, body: object) => {
    const text = JSON.stringify(body);
    res.writeHead(status, { 'retry-after': '0', 'content-length': text.length }).end(text);
  };
  const held = (res: ServerResponse) =>
    answer(res, 201, { id: '11111111-1111-5111-8111-111111111111' });
  const refuse = (res: ServerResponse, status: number, code: string) =>
    answer(res, status, { code });

  it('a generator that falls behind still tells each buyer when he meant to come', async () => {
    const intended: number[] = [];
    const late: number[] = [];
    await arrive(
      open.arrivals,
      (number, intendedMs) => {
        intended.push(intendedMs);
        late.push(Date.now() - intendedMs);
        // The whole process stands still.
        if (number === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150);
        return Promise.resolve();
      },
      never,
    );
    expect(intended.map((ms) => ms - intended[0]!)).toEqual([
      0, 10, 20, 30, 40, 50, 60, 70, 80, 90,
    ]);
    expect(late[1]).toBeGreaterThanOrEqual(139);
    expect(late[9]).toBeGreaterThanOrEqual(59);
  });

  it('a shop that stalls once is slow for all who wanted to come meanwhile', async () => {
    const stalled = await serve((_req, res, number) => {
      setTimeout(() => held(res), number === 0 ? 300 : 0);
    }, 1);
    const visits: Visit[] = [];
    await arrive(
      open.arrivals,
      async (number, intendedMs) =>
        void visits.push(await visit(open, { number, intendedMs }, stalled, () => undefined)),
      never,
    );
    const tookMs = visits.map(({ decidedMs, intendedMs }) => decidedMs - intendedMs);
    expect(visits.every(({ end }) => end === 'HELD')).toBe(true);
    tookMs.forEach((ms, number) => expect(ms).toBeGreaterThanOrEqual(298 - number * 10));
  });

  it('who is not decided yet repeats with the same key, and waits no longer than his patience', async () => {
    const keys: unknown[] = [];
    const answers: string[] = [];
    const busy = await serve((req, res, number) => {
      keys.push(req.headers['idempotency-key']);
      if (number < 2) refuse(res, number === 0 ? 503 : 202, 'SALE_BUSY');
      else held(res);
    }, 4);
    const now = { number: 7, intendedMs: Date.now() };
    const made = await visit(open, now, busy, (answer) => answers.push(answer));
    expect(made).toMatchObject({ end: 'HELD', intendedMs: now.intendedMs });
    expect(new Set(keys)).toEqual(new Set(['buyer-7-1']));
    expect(answers).toEqual(['503 SALE_BUSY', '202', '201']);

    const impatient = { ...open, patienceMs: -1 };
    server!.removeAllListeners('request').on('request', (_req, res: ServerResponse) => {
      refuse(res, 503, 'SALE_BUSY');
    });
    expect(await visit(impatient, now, busy, () => undefined)).toMatchObject({ end: 'GAVE_UP' });
  });

  it('sold out is an answer, and anything else that is no hold is a failure', async () => {
    let requests = 0;
    const shop = await serve((_req, res, number) => {
      requests += 1;
      if (number === 0) refuse(res, 409, 'INSUFFICIENT_STOCK');
      else if (number === 1) refuse(res, 500, 'INTERNAL_ERROR');
      else res.destroy();
    }, 1);
    const ends: string[] = [];
    for (const number of [1, 2, 3]) {
      const at = { number, intendedMs: Date.now() };
      ends.push((await visit(open, at, shop, () => undefined)).end);
    }
    expect(ends).toEqual(['REFUSED', 'FAILED', 'FAILED']);
    expect(requests, 'asked again on a new connection when a kept one is closed').toBe(4);
  });
});

describe('the checks of the benches', () => {
  it('a unit is free from the movement that brings one to the one that leaves none in any bin', () => {
    const left = (bin: string, atMs: number, available: number) => ({ bin, atMs, available });
    expect(
      freePeriods([
        left('a', 0, 2),
        left('b', 10, 1),
        left('a', 20, 0),
        left('b', 30, 0),
        left('a', 40, 1),
      ]),
    ).toEqual([
      { fromMs: 0, untilMs: 30 },
      { fromMs: 40, untilMs: Infinity },
    ]);
  });

  it('R14: who is told "sold out" while a unit was free for more than 1 s is found, and nobody else', () => {
    const free = [{ fromMs: 0, untilMs: 10_000 }];
    const found = (visit: Partial<Visit>) =>
      falselyRefused([{ ...seen, ...visit }], free).length === 1;
    expect(found({})).toBe(true);
    expect(found({ end: 'HELD' })).toBe(false);
    expect(found({ sentMs: 900 }), 'free for less than 1 s').toBe(false);
    expect(found({ decidedMs: 10_001 }), 'the last unit went meanwhile').toBe(false);
    expect(found({ sentMs: 10_500, decidedMs: 10_600 }), 'sold out').toBe(false);
  });

  it('a hold that somebody was told of has a row, and one owner', () => {
    const told = (holdId: string): Visit => ({ ...seen, end: 'HELD', holdId });
    expect(brokenPromises([told('a'), seen, told('b')], new Set(['a', 'b', 'c']))).toEqual([]);
    expect(brokenPromises([told('a'), told('b')], new Set(['a']))).toHaveLength(1);
    expect(brokenPromises([told('a'), told('a')], new Set(['a']))).toHaveLength(1);
  });

  it('what could not be measured misses its goal', () => {
    const compared = { bench: 'b', metric: 'm', baselineName: 'n' };
    const judge = (ours: number[], baseline: number[]) =>
      [atLeast, atMost].map((each) => each(1, { ...compared, ours, baseline }).holds);
    expect(judge([1], [1])).toEqual([true, true]);
    expect(judge([NaN], [1])).toEqual([false, false]);
    expect(judge([1], [NaN])).toEqual([false, false]);
    expect(percentile([], 99)).toBeNaN();
    expect(percentile([3, 1, 2], 50)).toBe(2);
    expect(percentile([3, 1, 2], 99)).toBe(3);
  });
});
