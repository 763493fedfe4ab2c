import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { addKey, newKey } from '../../db/keys.js';
import { everything } from '../db/books.js';
import { atOnce, sharedService, statuses, succeeded } from './service.js';
import type { Answer } from './service.js';

const service = sharedService({ workers: false });

/** Without workers nothing is claimed: an unknown product is refused after all checks, by Postgres. */
const attempt = (buyer: string, rest: { key?: string; path?: string } = {}) =>
  service.attempt({ nothing: 1 }, { buyer, ...rest });
const passed = [404, 'PRODUCT_NOT_FOUND'];
const limited = [429, 'RATE_LIMITED'];
const told = ({ status, body }: Answer<unknown>) => [status, body.code];

afterEach(() => vi.useRealTimers());

describe('a limit for each buyer', () => {
  beforeAll(() => service.restartApi({ rates: { perKey: null, perBuyer: 5 } }));

  it('S10: the sixth checkout of a buyer within 10 s is 429 with Retry-After and reaches neither Postgres nor Temporal; another buyer is served', async () => {
    const buyer = randomUUID();
    const answers = await atOnce(5, () => attempt(buyer));
    expect(statuses(answers)).toEqual({ 404: 5 });
    const before = await everything(service.shop);
    const reads = vi.spyOn(service.shop.db.reads, 'rows');
    for (const path of ['/v1/holds', '/v1/orders']) {
      const refused = await attempt(buyer, { path });
      expect(told(refused)).toEqual(limited);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
      expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(10);
      expect(refused.body.detail).toContain(
        'more than 5 checkouts of this buyer within 10 seconds',
      );
      expect(refused.text).not.toContain(buyer);
    }
    // The key is remembered for some seconds, so that not even it is read.
    expect(reads.mock.calls.map(([query]) => query.name)).toEqual([]);
    reads.mockRestore();
    expect(await everything(service.shop)).toEqual(before);
    expect(told(await attempt(randomUUID()))).toEqual(passed);
  });

  it('S10: after the 10 s it is served again, and what was refused meanwhile does not make it longer', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const buyer = randomUUID();
    for (let i = 0; i < 8; i += 1) await attempt(buyer);
    vi.advanceTimersByTime(9_000);
    const refused = await attempt(buyer);
    expect(told(refused)).toEqual(limited);
    expect(refused.headers['retry-after']).toBe('1');
    vi.advanceTimersByTime(1_001);
    expect(told(await attempt(buyer))).toEqual(passed);
  });

  it('R08: repeats of a key count like any checkout', async () => {
    const [buyer, key] = [randomUUID(), randomUUID()];
    const answers = await atOnce(7, () => attempt(buyer, { key }));
    expect(statuses(answers)).toEqual({ 404: 5, 429: 2 });
  });

  it('a body that is refused for its form or its fields counts for nobody, and reads count for no buyer', async () => {
    const buyer = randomUUID();
    const wrong = { buyer_id: buyer, lines: [{ sku: 'nothing', quantity: 0 }] };
    for (let i = 0; i < 7; i += 1) {
      const answer = await service.post('/v1/holds', wrong, { idempotencyKey: randomUUID() });
      expect(told(answer)).toEqual([422, 'INVALID_QUANTITY']);
      const read = await service.get(`/v1/holds/${randomUUID()}?buyer_id=${buyer}`);
      expect(told(read)).toEqual([404, 'HOLD_NOT_FOUND']);
    }
    expect(told(await attempt(buyer))).toEqual(passed);
  });
});

describe('a limit for each API key', () => {
  const [mine, other] = [newKey(), newKey()];

  beforeAll(async () => {
    await addKey(service.shop.db, 'shop', 'flood', mine);
    await addKey(service.shop.db, 'shop', 'calm', other);
    await service.restartApi({ rates: { perKey: 5, perBuyer: null } });
  });
  afterAll(() => service.restartApi());

  it('S10: the sixth request of a key within 10 s is 429 on every route that needs one, before its headers and body are looked at; other keys, webhooks and health are not limited', async () => {
    const read = (key: string) => service.get('/v1/products', { key });
    expect(statuses(await atOnce(5, () => read(mine)))).toEqual({ 200: 5 });
    expect(told(await read(mine))).toEqual(limited);
    // No Idempotency-Key and no JSON: that would be told first if it were looked at first.
    const checkout = await service.send('POST', '/v1/holds', { key: mine, raw: '{' });
    expect(told(checkout)).toEqual(limited);
    expect(checkout.body.detail).toContain('more than 5 requests of this API key');
    expect((await read(other)).status).toBe(200);
    // A key that may not is told so first.
    expect((await service.get('/v1/holds', { key: mine })).status).toBe(403);
    for (let i = 0; i < 7; i += 1) {
      const event = await service.deliver(succeeded({ hold_id: randomUUID() }));
      expect(told(event)).toEqual([404, 'HOLD_NOT_FOUND']);
      expect((await service.get('/livez', { key: null })).status).toBe(200);
    }
  });

  it('S10: a refused key is not counted, so nobody can use up the allowance of another', async () => {
    for (let i = 0; i < 7; i += 1)
      expect((await service.get('/v1/products', { key: `${mine}x` })).status).toBe(401);
  });
});
