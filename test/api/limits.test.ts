import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { other, whenWaiting } from '../db/rivals.js';
import { length } from '../setup/length.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Answer, Hold } from './service.js';

// Few at once, so that each is decided within its 3.5 s also on a busy machine; the others come again.
const service = sharedService({ claimsInFlight: 24 });

const rounds = length(2, 5);

interface Rules {
  max_open_holds: number | null;
  cool_down: { holds: number; within_seconds: number; wait_seconds: number } | null;
  updated_at: string;
}

const path = '/v1/settings/buyer-rules';
const rules = (set: object) => service.put<Rules>(path, { reason: 'scalpers', ...set });
const buyer = () => `buyer-${randomUUID()}`;
const cancel = ({ id }: Hold) => service.post(`/v1/holds/${id}/cancel`, { reason: 'no more' });

afterEach(async () => {
  expect((await rules({ max_open_holds: null, cool_down: null })).status).toBe(200);
});

/** So many at once, each with a key of its own that is repeated until it is known what became of it. */
function atOnceOf(one: string, count: number, sku: string): Promise<Answer<Hold>[]> {
  return atOnce(count, async () => {
    const key = randomUUID();
    for (;;) {
      const answer = await service.attempt({ [sku]: 1 }, { buyer: one, key });
      if (answer.status !== 503 && answer.status !== 202) return answer;
      await pause(Number(answer.headers['retry-after']) * 1000 * Math.random());
    }
  });
}

/**
 * The same, lined up: nobody gets past the writing of its hold until two claims are in Postgres, which is
 * as many of one product as a worker sends at once (activities/claimTogether.ts).
 */
async function linedUp(one: string, count: number, sku: string): Promise<Answer<Hold>[]> {
  const rival = await other(service.shop, 'lock table tahan.holds in share mode');
  const answers = atOnceOf(one, count, sku);
  await whenWaiting(service.shop, 'tahan.claim', 2);
  await rival.commit();
  return answers;
}

const fourBins = (units: number) => [units, units, units, units];

/** So many were held, and all others refused by a limit. */
function ended(answers: Answer<Hold>[], held: number): void {
  // A first try that was not answered in time may have been held: its repeat is 200.
  const { 200: repeated = 0, 201: first = 0, ...others } = statuses(answers);
  expect({ held: first + repeated, ...others }).toEqual({ held, 409: answers.length - held });
  const refused = answers.filter(({ status }) => status === 409);
  expect(new Set(refused.map(({ body }) => body.code))).toEqual(new Set(['BUYER_LIMIT_EXCEEDED']));
}

describe('one buyer who asks many times at once', { timeout: 120_000 }, () => {
  it('S11: 64 checkouts at once with a limit of 2 units: exactly two, in each round', async () => {
    const sku = await service.product(fourBins(5), { per_buyer_limit: 2, allocation: 'spread' });
    for (let round = 1; round <= rounds; round += 1) {
      const one = buyer();
      ended(await linedUp(one, 64, sku), 2);
    }
    const held = 2 * rounds;
    expect(await service.counts(sku)).toEqual({ available: 20 - held, held, sold: 0 });
  });

  it('S10, S11: 200 checkouts at once with a cap of 2 open holds: exactly two, and an honest buyer of the same moment is served', async () => {
    await rules({ max_open_holds: 2 });
    const sku = await service.product(fourBins(5), { allocation: 'spread' });
    const [many, honest] = await Promise.all([
      linedUp(buyer(), 200, sku),
      service.checkout({ [sku]: 1 }),
    ]);
    ended(many, 2);
    expect(honest.status, honest.text).toBe(201);
    expect(await service.counts(sku)).toEqual({ available: 17, held: 3, sold: 0 });
  });
});

describe('B17: the allowance of one buyer', () => {
  it('B17: X has one unit confirmed and one held of 2: a third is refused; Y gets two of ten at once, and a place back by cancel and by expiry', async () => {
    const sku = await service.product([50], { per_buyer_limit: 2 });
    const [x, y] = [buyer(), buyer()];
    const paid = await service.hold({ [sku]: 1 }, { buyer: x });
    await service.paid(paid.id);
    await service.becomes(paid.id, 'CONFIRMED');
    await service.hold({ [sku]: 1 }, { buyer: x });
    const third = await service.checkout({ [sku]: 1 }, { buyer: x });
    expect([third.status, third.body.code]).toEqual([409, 'BUYER_LIMIT_EXCEEDED']);
    expect(third.body).toMatchObject({ rule: 'per_buyer_limit', sku, limit: 2 });

    const ten = await atOnce(10, () => service.checkout({ [sku]: 1 }, { buyer: y }));
    ended(ten, 2);
    const [first, second] = ten.filter(({ status }) => status < 300).map(({ body }) => body);
    expect((await cancel(first!)).status).toBe(200);
    const short = { buyer: y, fields: { hold_seconds: 2 } };
    const again = await service.hold({ [sku]: 1 }, short);
    expect((await service.checkout({ [sku]: 1 }, { buyer: y })).status).toBe(409);
    await service.becomes(again.id, 'EXPIRED');
    await service.hold({ [sku]: 1 }, { buyer: y });
    expect((await service.checkout({ [sku]: 1 }, { buyer: y })).status).toBe(409);
    expect((await service.get(`/v1/holds/${second!.id}`)).body.status).toBe('HELD');
  });

  it('R10, R08: of open holds alike: what is paid takes no place, repeats of a key use up nothing, a key whose claim was refused stays refused', async () => {
    await rules({ max_open_holds: 1 });
    const [sku, another] = [await service.product([9]), await service.product([9])];
    const [one, key] = [buyer(), randomUUID()];
    const hold = await service.hold({ [sku]: 1 }, { buyer: one, key });
    const repeats = await atOnce(5, () => service.checkout({ [sku]: 1 }, { buyer: one, key }));
    expect(statuses(repeats)).toEqual({ 200: 5 });
    const refusedKey = randomUUID();
    const ask = () => service.checkout({ [another]: 1 }, { buyer: one, key: refusedKey });
    const before = await everything(service.shop);
    const refused = await ask();
    expect([refused.status, refused.body.code]).toEqual([409, 'BUYER_LIMIT_EXCEEDED']);
    expect(refused.body).toMatchObject({ rule: 'max_open_holds', open_holds: 1, limit: 1 });
    expect(refused.body.detail).toContain('at most 1 open holds');
    expect(await everything(service.shop)).toEqual(before);
    // A claim that another process let through is refused for good.
    await service.claimElsewhere({ [another]: 1 }, { buyer: one, key: refusedKey });
    await service.paid(hold.id);
    await service.becomes(hold.id, 'CONFIRMED');
    const again = await ask();
    expect([again.status, again.body.code, again.headers['idempotent-replayed']]).toEqual([
      409,
      'BUYER_LIMIT_EXCEEDED',
      'true',
    ]);
    const shown = await service.get(`/v1/holds/${await service.holdIdOf(one, refusedKey)}`);
    expect(shown.body).toMatchObject({
      status: 'REJECTED',
      refusal: { code: 'BUYER_LIMIT_EXCEEDED', rule: 'max_open_holds', limit: 1 },
    });
    await service.hold({ [another]: 1 }, { buyer: one });
  });
});

describe('a cool-down', () => {
  it('S10: after two lapsed holds the next checkout is 409 BUYER_COOL_DOWN with retry_at and Retry-After; a repeat of the key counts the rest down; afterwards a fresh key is served', async () => {
    await rules({ cool_down: { holds: 2, within_seconds: 3600, wait_seconds: 900 } });
    const sku = await service.product([9]);
    const one = buyer();
    const lapsing = { buyer: one, fields: { hold_seconds: 1 } };
    const holds = [
      await service.hold({ [sku]: 1 }, lapsing),
      await service.hold({ [sku]: 1 }, lapsing),
    ];
    for (const { id } of holds) await service.becomes(id, 'EXPIRED');
    const key = randomUUID();
    const ask = () => service.checkout({ [sku]: 1 }, { buyer: one, key });
    const refused = await ask();
    expect([refused.status, refused.body.code]).toEqual([409, 'BUYER_COOL_DOWN']);
    const end = Math.max(...holds.map(({ expires_at: at }) => Date.parse(at!)));
    const retryAt = new Date(end + 900_000).toISOString();
    expect(refused.body).toMatchObject({ retry_at: retryAt });
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(800);
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(900);
    await service.hold({ [sku]: 1 });
    await service.shop.shiftClock(600_000);
    const again = await ask();
    expect(again.body).toMatchObject({ code: 'BUYER_COOL_DOWN', retry_at: retryAt });
    expect(Number(again.headers['retry-after'])).toBeLessThanOrEqual(300);
    await service.claimElsewhere({ [sku]: 1 }, { buyer: one, key });
    const { id } = (
      await service.get<{ items: Hold[] }>(`/v1/holds?buyer_id=${one}&status=REJECTED`, {
        key: service.operatorKey,
      })
    ).body.items[0]!;
    const cancelled = await service.post(`/v1/holds/${id}/cancel`, { reason: 'no more' });
    expect([cancelled.status, cancelled.body.code]).toEqual([409, 'BUYER_COOL_DOWN']);
    await service.shop.shiftClock(901_000);
    expect((await ask()).headers['retry-after']).toBe('1');
    await service.hold({ [sku]: 1 }, { buyer: one });
  });
});

describe(path, () => {
  it('R10: an operator sets the rules, one at a time, with a reason; both are null at first', async () => {
    const read = async () => (await service.get<Rules>(path, { key: service.operatorKey })).body;
    expect(await read()).toMatchObject({ max_open_holds: null, cool_down: null });
    const coolDown = { holds: 3, within_seconds: 600, wait_seconds: 60 };
    expect((await rules({ max_open_holds: 4 })).body).toMatchObject({ max_open_holds: 4 });
    const both = { max_open_holds: 4, cool_down: coolDown };
    expect((await rules({ cool_down: coolDown })).body).toMatchObject(both);
    expect(await read()).toMatchObject(both);
    expect((await rules({ max_open_holds: 0 })).body).toMatchObject({ ...both, max_open_holds: 0 });
    const refused = await service.checkout({ [await service.product([1])]: 1 });
    expect(refused.body).toMatchObject({ code: 'BUYER_LIMIT_EXCEEDED', limit: 0 });
    const [kept] = await service.shop.query(
      `select after, actor, reason from tahan.setting_changes where what = 'buyer rules' order by id desc limit 1`,
    );
    expect(kept).toEqual({
      after: { maxOpenHolds: 0, coolDown: { holds: 3, withinSeconds: 600, seconds: 60 } },
      actor: 'operator:ann',
      reason: 'scalpers',
    });
  });

  it.each([
    [{}, 422, 'REASON_REQUIRED'],
    [{ reason: ' ' }, 422, 'REASON_REQUIRED'],
    [{ reason: 'x', max_open_holds: -1 }, 400, 'INVALID_REQUEST'],
    [{ reason: 'x', max_open_holds: '2' }, 400, 'INVALID_REQUEST'],
    [{ reason: 'x', max_open_holds: 1.5 }, 400, 'INVALID_REQUEST'],
    [{ reason: 'x', cool_down: {} }, 400, 'INVALID_REQUEST'],
    [{ reason: 'x', cool_down: { holds: 1, within_seconds: 1 } }, 400, 'INVALID_REQUEST'],
    [
      { reason: 'x', cool_down: { holds: 0, within_seconds: 1, wait_seconds: 1 } },
      400,
      'INVALID_REQUEST',
    ],
    [
      { reason: 'x', cool_down: { holds: 1, within_seconds: 1, wait_seconds: 2_592_001 } },
      400,
      'INVALID_REQUEST',
    ],
    [{ reason: 'x', max_open_hold: 1 }, 400, 'INVALID_REQUEST'],
  ])('B18: %j is %i %s and changes nothing', async (body, status, code) => {
    const answer = await service.put(path, body);
    expect([answer.status, answer.body.code], answer.text).toEqual([status, code]);
    const { body: now } = await service.get<Rules>(path, { key: service.operatorKey });
    expect(now).toMatchObject({ max_open_holds: null, cool_down: null });
  });
});
