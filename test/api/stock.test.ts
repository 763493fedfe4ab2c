import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { otherOnBins } from '../db/rivals.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Availability, Movement, Page, Product } from './service.js';

const service = sharedService({ workers: false });

interface Changed {
  available: number;
  held: number;
  sold: number;
  version: number;
  safety_stock: number;
}

function change(
  sku: string,
  what: 'restock' | 'adjustments',
  body: object,
  idempotencyKey?: string,
) {
  return service.post<Changed>(`/v1/products/${sku}/bins/b1/${what}`, body, {
    key: service.operatorKey,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  });
}

describe('stock', () => {
  it('R37: a restock of 5 and an adjustment of -2 need a reason and leave movements of 5 and 2, with who and why', async () => {
    const sku = await service.product([10]);
    for (const body of [
      { quantity: 5 },
      { quantity: 5, reason: '' },
      { quantity: 5, reason: ' ' },
      { quantity: 5, reason: null },
    ]) {
      const answer = await change(sku, 'restock', body);
      expect([answer.status, answer.body.code]).toEqual([422, 'REASON_REQUIRED']);
    }
    const bare = await change(sku, 'adjustments', { delta: -2 });
    expect([bare.status, bare.body.code]).toEqual([422, 'REASON_REQUIRED']);
    expect(await service.ledger(sku)).toEqual([]);

    const arrived = await change(sku, 'restock', {
      quantity: 5,
      reason: 'truck',
      reference: 'LS-7',
    });
    expect(arrived.body).toEqual({
      sku,
      bin: 'b1',
      available: 15,
      held: 0,
      sold: 0,
      safety_stock: 0,
      version: 2,
    });
    const broken = await change(sku, 'adjustments', { delta: -2, reason: 'two were broken' });
    expect(broken.body).toMatchObject({ available: 13, version: 3 });
    const { body } = await service.get<Page<Movement>>(`/v1/movements?sku=${sku}`, {
      key: service.operatorKey,
    });
    expect(
      body.items.map(({ type, quantity, reason, actor, from, to, metadata }) => [
        type,
        quantity,
        reason,
        actor,
        from.available,
        to.available,
        metadata,
      ]),
    ).toEqual([
      ['manual_adjustment', 2, 'two were broken', 'operator:ann', 15, 13, {}],
      ['restock', 5, 'truck', 'operator:ann', 10, 15, { reference: 'LS-7' }],
      ['restock', 10, 'opening', 'operator:ann', 0, 10, {}],
    ]);
  });

  it('R37: an adjustment below zero is 409 and says what there is: -11 of 10', async () => {
    const sku = await service.product([10]);
    const before = await everything(service.shop);
    const answer = await change(sku, 'adjustments', { delta: -11, reason: 'lost' });
    expect([answer.status, answer.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    expect(answer.body.shortfalls).toEqual([{ sku, requested: 11, available: 10 }]);
    expect(await everything(service.shop)).toEqual(before);
    expect((await change(sku, 'adjustments', { delta: -10, reason: 'lost' })).body.available).toBe(
      0,
    );
  });

  it('the same Idempotency-Key restocks once: ten at once of 5 make 5; with another quantity it is 422', async () => {
    const sku = await service.product([0]);
    const key = randomUUID();
    const body = { quantity: 5, reason: 'truck' };
    const answers = await atOnce(10, () => change(sku, 'restock', body, key));
    expect(statuses(answers)).toEqual({ 200: 10 });
    expect(new Set(answers.map((one) => one.body.available))).toEqual(new Set([5]));
    expect(await service.counts(sku)).toEqual({ available: 5, held: 0, sold: 0 });
    const other = await change(sku, 'restock', { ...body, quantity: 6 }, key);
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    await atOnce(2, () => change(sku, 'restock', body));
    expect(await service.counts(sku)).toEqual({ available: 15, held: 0, sold: 0 });
  });

  it('a bin never holds more than 2,000,000,000 units: one more is 422, and nothing overflows', async () => {
    const sku = await service.product([10]);
    const full = { quantity: 1_999_999_990, reason: 'many' };
    expect((await change(sku, 'restock', full)).body.available).toBe(2_000_000_000);
    for (const body of [{ quantity: 1, reason: 'one' }, full]) {
      const answer = await change(sku, 'restock', body);
      expect([answer.status, answer.body.code]).toEqual([422, 'INVALID_QUANTITY']);
    }
    expect((await change(sku, 'adjustments', { delta: 1, reason: 'one' })).status).toBe(422);
    expect((await service.counts(sku)).available).toBe(2_000_000_000);
  });

  it('an unknown product or bin is 404 by its own code', async () => {
    const sku = await service.product([1]);
    const body = { quantity: 1, reason: 'truck' };
    const operator = { key: service.operatorKey };
    const answers = [
      await service.post('/v1/products/none/bins/b1/restock', body, operator),
      await service.post(`/v1/products/${sku}/bins/none/restock`, body, operator),
      await service.put('/v1/products/none/bins/b1', {}),
      await service.get('/v1/products/none'),
      await service.get('/v1/products/none/availability'),
    ];
    expect(answers.map(({ status, body }) => `${status} ${body.code}`)).toEqual([
      '404 PRODUCT_NOT_FOUND',
      '404 BIN_NOT_FOUND',
      '404 PRODUCT_NOT_FOUND',
      '404 PRODUCT_NOT_FOUND',
      '404 PRODUCT_NOT_FOUND',
    ]);
  });

  it('R25, R26: while somebody else holds the bin, a restock is 503 STOCK_LOCK_TIMEOUT within 5 s and has changed nothing; then it works', async () => {
    const sku = await service.product([1]);
    const other = await otherOnBins(service.shop, sku);
    const key = randomUUID();
    const body = { quantity: 1, reason: 'truck' };
    const answer = await change(sku, 'restock', body, key);
    await other.rollback();
    expect([answer.status, answer.body.code]).toEqual([503, 'STOCK_LOCK_TIMEOUT']);
    expect(answer.took).toBeLessThan(5000);
    expect(await service.ledger(sku)).toEqual([]);
    expect((await change(sku, 'restock', body, key)).body.available).toBe(2);
  });
});

describe('products and bins', () => {
  it('a product is created 201, changed 200 with a reason, and 422 without one; what is left out stays', async () => {
    const sku = `TEE/L-${randomUUID().slice(0, 8)}`;
    const path = `/v1/products/${encodeURIComponent(sku)}`;
    const created = await service.put(path, {
      name: 'Tee',
      price: { amount_minor: 1999, currency: 'IDR' },
      per_buyer_limit: 0,
    });
    expect([created.status, created.headers['location']]).toEqual([201, path]);
    expect(created.body).toMatchObject({
      sku,
      name: 'Tee',
      active: true,
      price: { amount_minor: 1999, currency: 'IDR' },
      hold_seconds: 600,
      max_hold_seconds: 1800,
      max_extensions: 2,
      per_buyer_limit: 0,
      late_payment: 'refund',
      allocation: 'in_order',
      bins: [],
    });
    const unasked = await service.put(path, { hold_seconds: 300 });
    expect([unasked.status, unasked.body.code]).toEqual([422, 'REASON_REQUIRED']);
    expect((await service.put(path, { name: 'Tee' })).status).toBe(200);
    const changed = await service.put(path, {
      hold_seconds: 300,
      price: null,
      per_buyer_limit: null,
      reason: 'free for all',
    });
    expect([changed.status, changed.body.hold_seconds, changed.body.price]).toEqual([
      200,
      300,
      null,
    ]);
    expect([changed.body.name, changed.body.per_buyer_limit]).toEqual(['Tee', null]);
    const kept = await service.shop.query(
      `select actor, reason from tahan.setting_changes where what = $1 order by id`,
      [`product ${sku}`],
    );
    expect(kept).toEqual([
      { actor: 'operator:ann', reason: null },
      { actor: 'operator:ann', reason: 'free for all' },
    ]);
  });

  it('settings out of range are 4xx, name their field and change nothing', async () => {
    const sku = await service.product([]);
    const operator = { key: service.operatorKey };
    const before = await service.get<Product>(`/v1/products/${sku}`, operator);
    const faults: [object, number, string][] = [
      [{ hold_seconds: 0 }, 422, 'hold_seconds'],
      [{ hold_seconds: 1801 }, 422, 'hold_seconds'],
      [{ hold_seconds: '600' }, 422, 'hold_seconds'],
      [{ max_hold_seconds: 86_401 }, 400, 'max_hold_seconds'],
      [{ max_hold_seconds: 599 }, 422, 'hold_seconds'],
      [{ max_extensions: 101 }, 400, 'max_extensions'],
      [{ max_extensions: -1 }, 400, 'max_extensions'],
      [{ per_buyer_limit: -1 }, 400, 'per_buyer_limit'],
      [{ per_buyer_limit: 2_147_483_648 }, 400, 'per_buyer_limit'],
      [{ price: { amount_minor: 10_000_000_001, currency: 'EUR' } }, 400, 'price'],
      [{ price: { amount_minor: 1 } }, 400, 'price.currency'],
      [{ price: { amount_minor: 1, currency: 'eur' } }, 400, 'price.currency'],
      [{ price: { amount_minor: 0.5, currency: 'EUR' } }, 400, 'price.amount_minor'],
      [{ price_minor: 5 }, 400, ''],
      [{ late_payment: 'maybe' }, 400, 'late_payment'],
      [{ allocation: 'random' }, 400, 'allocation'],
      [{ active: 'yes' }, 400, 'active'],
      [{ name: 'x'.repeat(201) }, 400, 'name'],
      [{ sku: 'other' }, 400, ''],
    ];
    for (const [settings, status, field] of faults) {
      const answer = await service.put(`/v1/products/${sku}`, { ...settings, reason: 'test' });
      expect([answer.status, answer.body.errors[0]!.field], answer.text).toEqual([status, field]);
    }
    expect((await service.get<Product>(`/v1/products/${sku}`, operator)).body).toEqual(before.body);
  });

  it('a bin is created 201; its safety stock changes only with a reason and is no movement', async () => {
    const sku = await service.product([]);
    const path = `/v1/products/${sku}/bins/shelf-1`;
    expect((await service.put<{ available: number }>(path, {})).status).toBe(201);
    expect((await service.put(path, { safety_stock: 3 })).body.code).toBe('REASON_REQUIRED');
    const changed = await service.put<{ safety_stock: number; version: number }>(path, {
      safety_stock: 3,
      reason: 'breakage',
    });
    expect([changed.status, changed.body.safety_stock, changed.body.version]).toEqual([200, 3, 0]);
    for (const safety_stock of [-1, 2_000_000_001, 1.5, '3', null]) {
      const answer = await service.put(path, { safety_stock, reason: 'x' });
      expect([answer.status, answer.body.code]).toEqual([400, 'INVALID_REQUEST']);
    }
  });

  it('the shop sees products without bins, operators with them; 3 products in pages of 2', async () => {
    const sku = await service.product([4, 0]);
    expect((await service.get<Product>(`/v1/products/${sku}`)).body).not.toHaveProperty('bins');
    const shown = await service.get<Product>(`/v1/products/${sku}`, { key: service.operatorKey });
    expect(shown.body.bins!.map(({ code, available }) => [code, available])).toEqual([
      ['b1', 4],
      ['b2', 0],
    ]);
    await service.product([]);
    await service.product([]);
    const skus: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page = await service.get<Page<Product>>(`/v1/products?limit=2${query}`);
      expect(page.body.items.length).toBeLessThanOrEqual(2);
      skus.push(...page.body.items.map((one) => one.sku));
      cursor = page.body.next_cursor;
    } while (cursor !== null);
    expect(skus).toEqual([...new Set(skus)].sort((a, b) => (a < b ? -1 : 1)));
    expect(skus).toContain(sku);
  });

  it('POST /v1/availability answers many products in one snapshot and names the unknown ones', async () => {
    const [a, b] = [await service.product([1, 2]), await service.product([])];
    const skus = [b, a, 'none', a, 'constructor'];
    const answer = await service.post<{ items: Availability[]; unknown: string[] }>(
      '/v1/availability',
      { skus },
    );
    const counts = new Map(answer.body.items.map((one) => [one.sku, one.sellable]));
    expect(counts).toEqual(
      new Map([
        [a, 3],
        [b, 0],
      ]),
    );
    expect(answer.body.unknown).toEqual(['none', 'constructor']);
    expect(new Set(answer.body.items.map((one) => one.as_of)).size).toBe(1);
  });
});

describe('the ledger', () => {
  it('R31: filtered by product, type and time, in pages that add up to all of it', async () => {
    const sku = await service.product([1]);
    for (let delta = 1; delta <= 4; delta += 1) {
      await change(sku, 'adjustments', { delta, reason: 'count' });
    }
    const read = async (query: string) => {
      const answer = await service.get<Page<Movement>>(`/v1/movements?sku=${sku}&${query}`, {
        key: service.operatorKey,
      });
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    };
    const all = (await read('')).items;
    expect(all.map(({ quantity }) => quantity)).toEqual([4, 3, 2, 1, 1]);
    const first = await read('limit=3');
    const rest = await read(`limit=3&cursor=${first.next_cursor}`);
    expect([...first.items, ...rest.items]).toEqual(all);
    expect(rest.next_cursor).toBeNull();
    expect((await read('type=restock')).items).toHaveLength(1);
    const from = encodeURIComponent(all[1]!.created_at);
    expect((await read(`from=${from}`)).items.map(({ quantity }) => quantity)).toEqual([4, 3]);
    expect((await read(`to=${from}`)).items).toHaveLength(3);
    const zoned = encodeURIComponent('2030-01-01T07:00:00+07:00');
    expect((await read(`from=${zoned}`)).items).toEqual([]);
  });
});
