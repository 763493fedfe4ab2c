import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { routes } from '../../api/app.js';
import { addKey, newKey, revokeKey } from '../../db/keys.js';
import { everything } from '../db/books.js';
import { sharedService, succeeded } from './service.js';
import type { Answer } from './service.js';

const service = sharedService({ workers: false });

const paths = (path: string) =>
  path
    .replace(':sku', 'none')
    .replace(':code', 'none')
    .replace(':number', 'NONE')
    .replace(':buyer_id', 'none')
    .replace(':provider/:payment_id', 'none/none')
    .replace(':id', randomUUID());

const guarded = routes
  .filter(({ role }) => role === 'shop' || role === 'operator')
  .map(({ method, path, role }) => {
    // A shop may list the orders of a buyer that it names.
    const named = method === 'get' && path === '/v1/orders' ? `${path}?buyer_id=none` : path;
    return { method: method.toUpperCase(), path: named, role };
  });

describe('API keys', () => {
  it('every route of /v1 needs a key, but the signed webhooks', () => {
    const open = routes.filter(({ role }) => role === 'none' || role === 'signed');
    expect(open.map(({ path }) => path)).toEqual([
      '/v1/payments/events',
      '/v1/payments/stripe/events',
      '/livez',
      '/readyz',
      '/openapi.json',
    ]);
    expect(guarded.length).toBeGreaterThan(15);
  });

  it.each(guarded)(
    '$method $path without a valid key is 401 UNAUTHENTICATED',
    async ({ method, path }) => {
      const before = await everything(service.shop);
      const answers: Answer<unknown>[] = [];
      for (const authorization of [
        undefined,
        '',
        'Bearer',
        'Bearer ',
        `Bearer ${newKey()}`,
        `Bearer ${service.operatorKey}x`,
        `Bearer ${service.operatorKey} x`,
        `Basic ${Buffer.from(`a:${service.operatorKey}`).toString('base64')}`,
        service.operatorKey,
        `Bearer ${'x'.repeat(4000)}`,
        "Bearer ' or 1=1 --",
      ]) {
        const headers: Record<string, string> =
          authorization === undefined ? {} : { authorization };
        answers.push(await service.send(method, paths(path), { key: null, headers, body: {} }));
      }
      const twice = ['authorization', 'Bearer x', 'authorization', `Bearer ${service.operatorKey}`];
      answers.push(await service.rawRequest(method, paths(path), twice));
      for (const { status, body, headers } of answers) {
        expect([status, body.code]).toEqual([401, 'UNAUTHENTICATED']);
        expect(headers['www-authenticate']).toBe('Bearer');
      }
      expect(await everything(service.shop)).toEqual(before);
    },
  );

  it.each(guarded)(
    'R39: $method $path with a shop key is allowed to the $role only',
    async ({ method, path, role }) => {
      const sent = { body: {}, idempotencyKey: randomUUID() };
      const shop = await service.send(method, paths(path), sent);
      if (role === 'operator') expect([shop.status, shop.body.code]).toEqual([403, 'FORBIDDEN']);
      else expect(shop.status).not.toBe(403);
      const operator = await service.send(method, paths(path), {
        ...sent,
        key: service.operatorKey,
      });
      expect([401, 403]).not.toContain(operator.status);
    },
  );

  it("R39: what moves stock, tells the ledger, lists all buyers or decides about money is the operator's", () => {
    const operators = guarded.filter(({ role }) => role === 'operator');
    expect(operators.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /v1/holds',
      'POST /v1/holds/:id/return',
      'PUT /v1/products/:sku',
      'PUT /v1/products/:sku/bins/:code',
      'GET /v1/products/:sku/changes',
      'POST /v1/products/:sku/bins/:code/restock',
      'POST /v1/products/:sku/bins/:code/adjustments',
      'POST /v1/products/:sku/bins/:code/move',
      'GET /v1/stock',
      'POST /v1/stock/imports',
      'GET /v1/movements',
      'GET /v1/holds/:id/movements',
      'GET /v1/products/:sku/statement',
      'GET /v1/payments',
      'GET /v1/payments/unmatched',
      'GET /v1/payments/:provider/:payment_id',
      'POST /v1/payments/:provider/:payment_id/decision',
      'GET /v1/settings/buyer-rules',
      'PUT /v1/settings/buyer-rules',
    ]);
  });

  it('a webhook signature is no key, and a key is no signature', async () => {
    const keys = await service.send('POST', '/v1/payments/events', {
      key: service.operatorKey,
      body: succeeded({ hold_id: randomUUID() }),
    });
    expect([keys.status, keys.body.code]).toEqual([401, 'SIGNATURE_INVALID']);
    const signedRead = await service.get('/v1/holds', { key: service.secret });
    expect(signedRead.status).toBe(401);
  });

  it('a new key works at once; a revoked one is refused within 2 s', async () => {
    const key = newKey();
    expect((await service.get('/v1/products', { key })).status).toBe(401);
    const { id } = await addKey(service.shop.db, 'shop', 'temporary', key);
    expect((await service.get('/v1/products', { key })).status).toBe(200);
    expect(await revokeKey(service.shop.db, id)).toBe(true);
    const revoked = performance.now();
    for (;;) {
      // What counts is when it was asked: the answer may take its time.
      const askedAt = performance.now() - revoked;
      if ((await service.get('/v1/products', { key })).status === 401) break;
      expect(askedAt).toBeLessThan(2000);
      await new Promise((again) => setTimeout(again, 50));
    }
    expect((await service.get('/v1/products')).status).toBe(200);
  });

  it('S21: keys, signatures, bodies and buyers are in no line of the log; each request is, with its id, path and status', async () => {
    service.log.length = 0;
    const buyer = `canary-${randomUUID()}`;
    const checkout = await service.attempt({ unknown: 1 }, { buyer });
    await service.get(`/v1/holds/${randomUUID()}?buyer_id=${buyer}`);
    await service.get('/v1/holds', { key: service.operatorKey });
    await service.deliver(succeeded({ hold_id: randomUUID(), payment_id: buyer }));
    await service.get('/v1/products', { key: `${service.shopKey}x` });
    const log = service.log.join('');
    for (const secret of [service.shopKey, service.operatorKey, service.secret, buyer, 'v1,']) {
      expect(log).not.toContain(secret);
    }
    const lines = service.log.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines).toHaveLength(5);
    expect(lines[0]).toMatchObject({
      reqId: checkout.headers['x-request-id'],
      req: { method: 'POST', path: '/v1/holds' },
      res: { status: 404 },
    });
    expect(checkout.body.request_id).toBe(checkout.headers['x-request-id']);
  });

  it('answers tell nothing of the software, are not cached, and carry the usual protections', async () => {
    for (const { headers } of [await service.get('/livez'), await service.get('/nothing')]) {
      expect(headers).not.toHaveProperty('x-powered-by');
      expect(headers).not.toHaveProperty('etag');
      expect(headers['cache-control']).toBe('no-store');
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers).toHaveProperty('content-security-policy');
    }
  });
});
