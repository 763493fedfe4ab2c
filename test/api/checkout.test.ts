import { randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Availability, Hold, Order } from './service.js';

const service = sharedService();

describe('POST /v1/holds', () => {
  it('R32: a checkout of 2 moves 2 units from available to held and none to sold; it is held for 600 s', async () => {
    const sku = await service.product([5]);
    const answer = await service.checkout({ [sku]: 2 }, { buyer: 'buyer-1' });
    expect(answer.status, answer.text).toBe(201);
    const { body } = answer;
    expect(answer.headers['location']).toBe(`/v1/holds/${body.id}`);
    expect(body).toMatchObject({
      status: 'HELD',
      buyer_id: 'buyer-1',
      lines: [{ sku, quantity: 2, allocations: [{ bin: 'b1', quantity: 2 }] }],
      expires_in_seconds: 600,
      closed_at: null,
      reason: null,
      refusal: null,
      payments: [],
      order_number: null,
      workflow_id: `hold:${body.id}`,
    });
    expect(Date.parse(body.expires_at!) - Date.parse(body.created_at)).toBe(600_000);
    expect(await service.counts(sku)).toEqual({ available: 3, held: 2, sold: 0 });
    expect(await service.ledger(sku)).toEqual(['reserve 2 b1']);
    const { body: read } = await service.get(answer.headers['location']!);
    expect(read).toEqual({
      ...body,
      server_time: read.server_time,
      expires_in_seconds: read.expires_in_seconds,
    });
  });

  it('hold_seconds 2 is held for 2 s and then given back without any sweeper', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 2 } });
    expect(Date.parse(hold.expires_at!) - Date.parse(hold.created_at)).toBe(2000);
    const ended = await service.becomes(hold.id, 'EXPIRED');
    expect(Date.parse(ended.closed_at!)).toBeGreaterThanOrEqual(Date.parse(hold.expires_at!));
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 0 });
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });

  it('R40: two buyers check out the last unit at once: one is held, the other is told INSUFFICIENT_STOCK', async () => {
    const sku = await service.product([1]);
    const answers = await atOnce(2, () => service.checkout({ [sku]: 1 }));
    expect(statuses(answers)).toEqual({ 201: 1, 409: 1 });
    const refused = answers.find(({ status }) => status === 409)!.body;
    expect(refused.code).toBe('INSUFFICIENT_STOCK');
    expect(refused.shortfalls).toEqual([{ sku, requested: 1, available: 0 }]);
    expect(refused.detail).toContain(`1 of ${sku} asked, 0 free`);
  });

  it('B04: lines of one product are added up: 1 + 2 of 2 units is refused, 10 + 5 beside 20 held of 50 makes 35, 1 + 2 passes a limit of 2', async () => {
    const two = await service.product([2]);
    const twice = (sku: string, a: number, b: number) => [
      { sku, quantity: a },
      { sku, quantity: b },
    ];
    const refused = await service.checkout(twice(two, 1, 2));
    expect([refused.status, refused.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    expect(refused.body.shortfalls).toEqual([{ sku: two, requested: 3, available: 2 }]);
    expect(await service.counts(two)).toEqual({ available: 2, held: 0, sold: 0 });

    const fifty = await service.product([50]);
    await service.hold({ [fifty]: 20 });
    const { lines } = await service.hold(twice(fifty, 10, 5));
    expect(lines).toMatchObject([
      { sku: fifty, quantity: 15, allocations: [{ bin: 'b1', quantity: 15 }] },
    ]);
    expect(await service.counts(fifty)).toEqual({ available: 15, held: 35, sold: 0 });

    const limited = await service.product([50], { per_buyer_limit: 2 });
    const over = await service.checkout(twice(limited, 1, 2));
    expect([over.status, over.body.code]).toEqual([409, 'BUYER_LIMIT_EXCEEDED']);
    expect(await service.counts(limited)).toEqual({ available: 50, held: 0, sold: 0 });
  });

  it('B04: lines of one product that add up to more than 10,000 are no quantity: 6,000 + 6,000 is 422', async () => {
    const sku = await service.product([50_000]);
    const answer = await service.checkout([
      { sku, quantity: 6000 },
      { sku, quantity: 6000 },
    ]);
    expect([answer.status, answer.body.code]).toEqual([422, 'INVALID_QUANTITY']);
    expect(await service.ledger(sku)).toEqual([]);
  });

  it('B06, R12: bins of 4, 3 and 3 with 4 holds of 1 and 20 old movements show 6; 7 is refused, 6 is held, then 0 are shown', async () => {
    const sku = await service.product([4, 3, 3]);
    for (let times = 0; times < 10; times += 1) {
      for (const delta of [1, -1]) {
        const path = `/v1/products/${sku}/bins/b2/adjustments`;
        await service.post(path, { delta, reason: 'opening' }, { key: service.operatorKey });
      }
    }
    await atOnce(4, () => service.hold({ [sku]: 1 }));
    const path = `/v1/products/${sku}/availability`;
    const shown = await service.get<Availability>(path);
    expect(shown.body).toMatchObject({ available: 6, sellable: 6, held: 4, sold: 0, total: 10 });
    const seven = await service.checkout({ [sku]: 7 });
    expect([seven.status, seven.body.shortfalls]).toEqual([
      409,
      [{ sku, requested: 7, available: 6 }],
    ]);
    expect((await service.checkout({ [sku]: 6 })).status).toBe(201);
    const then = await service.get<Availability>(path);
    expect(then.body).toMatchObject({ available: 0, sellable: 0, held: 10, total: 10 });
    expect(Date.parse(then.body.next_release_at!)).toBeGreaterThan(Date.parse(then.body.as_of));
  });

  it('R07: an overdue unpaid hold is shown as available and goes to the next buyer, whether or not its expiry ran', async () => {
    const sku = await service.product([1]);
    const first = await service.hold({ [sku]: 1 });
    await service.shop.shiftClock(601_000);
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 0 });
    const second = await service.hold({ [sku]: 1 });
    expect((await service.get(`/v1/holds/${first.id}`)).body.status).toBe('EXPIRED');
    expect((await service.get(`/v1/holds/${second.id}`)).body.status).toBe('HELD');
    expect(await service.counts(sku)).toEqual({ available: 0, held: 1, sold: 0 });
  });

  it('B11: an order of a1 and b1 with b sold out, or with an unknown product, leaves a untouched and no row in the ledger', async () => {
    const a = await service.product([5]);
    const b = await service.product([0]);
    const before = await everything(service.shop);
    const soldOut = await service.checkout({ [a]: 1, [b]: 1 });
    expect([soldOut.status, soldOut.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    expect(soldOut.body.shortfalls).toEqual([{ sku: b, requested: 1, available: 0 }]);
    const unknown = await service.checkout({ [a]: 1, nowhere: 1 });
    expect([unknown.status, unknown.body.code]).toEqual([404, 'PRODUCT_NOT_FOUND']);
    expect(await everything(service.shop)).toEqual(before);
  });

  it('B11: a client that vanishes before its answer finds its one hold again by its key', async () => {
    const sku = await service.product([5]);
    const [buyer, key] = ['vanished', randomUUID()];
    const body = JSON.stringify({ buyer_id: buyer, lines: [{ sku, quantity: 1 }] });
    const cut = httpRequest(`${service.url()}/v1/holds`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${service.shopKey}`,
        'idempotency-key': key,
        'content-type': 'application/json',
      },
    });
    cut.on('error', () => {});
    await new Promise<void>((sent) => cut.end(body, sent));
    cut.destroy();
    const found = await service.hold({ [sku]: 1 }, { buyer, key });
    expect(found.status).toBe('HELD');
    expect(await service.counts(sku)).toEqual({ available: 4, held: 1, sold: 0 });
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1']);
  });

  it('B14: bins of 1 + 1 serve an order of 2 out of both, a and b in different bins are held together, and 3 of 1 + 1 holds nothing', async () => {
    const sku = await service.product([1, 1]);
    const three = await service.checkout({ [sku]: 3 });
    expect([three.status, three.body.shortfalls]).toEqual([
      409,
      [{ sku, requested: 3, available: 2 }],
    ]);
    expect(await service.counts(sku)).toEqual({ available: 2, held: 0, sold: 0 });
    const both = await service.hold({ [sku]: 2 });
    expect(both.lines[0]!.allocations).toEqual([
      { bin: 'b1', quantity: 1 },
      { bin: 'b2', quantity: 1 },
    ]);
    const a = await service.product([1, 0]);
    const b = await service.product([0, 1]);
    const apart = await service.hold({ [a]: 1, [b]: 1 });
    expect(apart.lines.map(({ allocations }) => allocations[0]!.bin).sort()).toEqual(['b1', 'b2']);
  });

  it('R36: 10 available with 2 of safety sell 8; a safety stock of 20 makes 0 sellable, never a negative number', async () => {
    const sku = await service.product([10], { safety_stock: [2] });
    const path = `/v1/products/${sku}/availability`;
    expect((await service.get<Availability>(path)).body).toMatchObject({
      available: 10,
      sellable: 8,
      safety_stock: 2,
    });
    expect((await service.checkout({ [sku]: 9 })).body.shortfalls).toEqual([
      { sku, requested: 9, available: 8 },
    ]);
    await service.hold({ [sku]: 8 });
    await service.put(`/v1/products/${sku}/bins/b1`, { safety_stock: 20, reason: 'inventory' });
    expect((await service.get<Availability>(path)).body).toMatchObject({
      available: 2,
      sellable: 0,
    });
  });

  it('B17: a limit of 2 counts held and confirmed units; ten checkouts at once of one buyer make exactly two holds', async () => {
    const sku = await service.product([50], { per_buyer_limit: 2 });
    const [first] = [await service.hold({ [sku]: 1 }, { buyer: 'x' })];
    await service.paid(first.id);
    await service.becomes(first.id, 'CONFIRMED');
    await service.hold({ [sku]: 1 }, { buyer: 'x' });
    const third = await service.checkout({ [sku]: 1 }, { buyer: 'x' });
    expect([third.status, third.body.code]).toEqual([409, 'BUYER_LIMIT_EXCEEDED']);
    const many = await atOnce(10, () => service.checkout({ [sku]: 1 }, { buyer: 'y' }));
    expect(statuses(many)).toEqual({ 201: 2, 409: 8 });
  });

  it('R38: no such product, too few units, no quantity, not on sale and too long a hold are five different codes', async () => {
    const sku = await service.product([1], { max_hold_seconds: 900 });
    const off = await service.product([1], { active: false });
    const codes = [
      await service.checkout({ nothing: 1 }),
      await service.checkout({ [sku]: 2 }),
      await service.checkout({ [sku]: 0 }),
      await service.checkout({ [off]: 1 }),
      await service.checkout({ [sku]: 1 }, { fields: { hold_seconds: 901 } }),
    ].map(({ status, body }) => [status, body.code]);
    expect(codes).toEqual([
      [404, 'PRODUCT_NOT_FOUND'],
      [409, 'INSUFFICIENT_STOCK'],
      [422, 'INVALID_QUANTITY'],
      [409, 'PRODUCT_INACTIVE'],
      [422, 'INVALID_HOLD_SECONDS'],
    ]);
    expect((await service.checkout({ [sku]: 1 }, { fields: { hold_seconds: 900 } })).status).toBe(
      201,
    );
  });

  it('01234 is not 1234, and SKUs differ by case', async () => {
    const digits = String(Date.now());
    for (const sku of [digits, `A${digits}`]) {
      expect((await service.put(`/v1/products/${sku}`, {})).status).toBe(201);
    }
    for (const sku of [`0${digits}`, `a${digits}`, `${digits}.0`]) {
      const answer = await service.checkout({ [sku]: 1 });
      expect([answer.status, answer.body.code]).toEqual([404, 'PRODUCT_NOT_FOUND']);
    }
  });
});

describe('Idempotency-Key', () => {
  it('R08, B19: 20 requests at once with one key make one hold; a repeat shows it in its present state, reordered and respaced too', async () => {
    const sku = await service.product([50]);
    const [buyer, key] = ['rosa', randomUUID()];
    const answers = await atOnce(20, () => service.checkout({ [sku]: 1 }, { buyer, key }));
    expect(statuses(answers)).toEqual({ 201: 1, 200: 19 });
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1);
    for (const { status, headers } of answers) {
      expect(headers['idempotent-replayed']).toBe(status === 200 ? 'true' : undefined);
    }
    const spaced = `{ "lines" : [ { "quantity":1 ,"sku": "${sku}" } ],\n "buyer_id":"rosa" }`;
    const again = await service.send('POST', '/v1/holds', { raw: spaced, idempotencyKey: key });
    expect([again.status, again.body.id]).toEqual([200, answers[0]!.body.id]);
    expect(await service.counts(sku)).toEqual({ available: 49, held: 1, sold: 0 });

    await service.post(`/v1/holds/${again.body.id}/cancel`, { reason: 'changed my mind' });
    const after = await service.checkout({ [sku]: 1 }, { buyer, key });
    expect([after.status, after.body.id, after.body.status]).toEqual([
      200,
      again.body.id,
      'CANCELLED',
    ]);
    expect(await service.counts(sku)).toEqual({ available: 50, held: 0, sold: 0 });
  });

  it('B19: the same key with another body is 422 and holds nothing, also while the first is being decided', async () => {
    const sku = await service.product([50]);
    const [buyer, key] = ['rosa', randomUUID()];
    const both = await Promise.all([
      service.checkout({ [sku]: 1 }, { buyer, key }),
      service.checkout({ [sku]: 2 }, { buyer, key }),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual([201, 422]);
    const { quantity } = both.find(({ status }) => status === 201)!.body.lines[0]!;
    const others = [
      await service.checkout({ [sku]: quantity + 1 }, { buyer, key }),
      await service.checkout({ [sku]: quantity }, { buyer, key, fields: { hold_seconds: 60 } }),
      await service.checkout({ [sku]: quantity }, { buyer, key, fields: { metadata: { a: 'b' } } }),
      await service.checkout({ [sku]: quantity }, { buyer, key, path: '/v1/orders' }),
    ];
    for (const { status, body } of others) {
      expect([status, body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    }
    expect(await service.counts(sku)).toEqual({
      available: 50 - quantity,
      held: quantity,
      sold: 0,
    });
  });

  it('S7, B19: the same key of another buyer is a hold of its own, and shows nothing of the first', async () => {
    const sku = await service.product([50]);
    const key = randomUUID();
    const x = await service.hold(
      { [sku]: 1 },
      { buyer: 'x', key, fields: { metadata: { of: 'x' } } },
    );
    const y = await service.checkout({ [sku]: 1 }, { buyer: 'y', key });
    expect(y.status).toBe(201);
    expect(y.body.id).not.toBe(x.id);
    expect(y.text).not.toContain('"x"');
    // ("ab", "c") and ("a", "bc") are different pairs.
    const pairs = [
      await service.hold({ [sku]: 1 }, { buyer: 'ab', key: `c${key}` }),
      await service.hold({ [sku]: 1 }, { buyer: 'abc', key }),
    ];
    expect(pairs[0]!.id).not.toBe(pairs[1]!.id);
  });

  it('B19: a key whose claim was refused is refused again after the restock; a fresh key gets the unit', async () => {
    const sku = await service.product([0]);
    const [buyer, key] = ['rosa', randomUUID()];
    const first = await service.claimElsewhere({ [sku]: 1 }, { buyer, key });
    expect(first.outcome).toBe('INSUFFICIENT_STOCK');
    const bin = `/v1/products/${sku}/bins/b1/restock`;
    await service.post(bin, { quantity: 5, reason: 'opening' }, { key: service.operatorKey });
    const again = await service.checkout({ [sku]: 1 }, { buyer, key });
    expect([again.status, again.body.code, again.body.shortfalls]).toEqual([
      409,
      'INSUFFICIENT_STOCK',
      [{ sku, requested: 1, available: 0 }],
    ]);
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect((await service.checkout({ [sku]: 1 }, { buyer })).status).toBe(201);
  });

  it('a hold whose workflow was terminated is adopted by the repeat of its key, and still ends on time', async () => {
    const sku = await service.product([1]);
    const [buyer, key] = ['rosa', randomUUID()];
    const fields = { hold_seconds: 3 };
    const hold = await service.hold({ [sku]: 1 }, { buyer, key, fields });
    const handle = service.engine.holds.client.workflow.getHandle(hold.workflow_id);
    await handle.terminate('test');
    const again = await service.checkout({ [sku]: 1 }, { buyer, key, fields });
    expect([again.status, again.body.status]).toEqual([200, 'HELD']);
    await service.becomes(hold.id, 'EXPIRED');
    await handle.result();
    expect((await handle.describe()).status.name).toBe('COMPLETED');
  });
});

describe('POST /v1/orders', () => {
  it('R33: an order has a number, the prices of its moment in whole minor units, pending_payment and reservation_expires_at', async () => {
    const price = { amount_minor: 2500, currency: 'EUR' };
    const [a, b] = [
      await service.product([5], { price }),
      await service.product([5], { price: { amount_minor: 99, currency: 'EUR' } }),
    ];
    const answer = await service.checkout<Order>(
      { [a]: 2, [b]: 1 },
      { path: '/v1/orders', buyer: 'ann' },
    );
    expect(answer.status, answer.text).toBe(201);
    const { body } = answer;
    expect(body.order_number).toMatch(
      /^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$/,
    );
    expect(answer.headers['location']).toBe(`/v1/orders/${body.order_number}`);
    expect(body).toMatchObject({
      status: 'pending_payment',
      buyer_id: 'ann',
      total: { amount_minor: 5099, currency: 'EUR' },
    });
    expect(Date.parse(body.reservation_expires_at!) - Date.parse(body.placed_at)).toBe(600_000);
    const unit = (sku: string) => body.lines.find((line) => line.sku === sku)!.unit_price;
    expect([unit(a), unit(b)]).toEqual([price, { amount_minor: 99, currency: 'EUR' }]);

    await service.put(`/v1/products/${a}`, {
      price: { amount_minor: 1, currency: 'EUR' },
      reason: 'sale',
    });
    const path = `/v1/orders/${body.order_number}`;
    expect((await service.get<Order>(path)).body.total).toEqual({
      amount_minor: 5099,
      currency: 'EUR',
    });
    expect((await service.get(`/v1/holds/${body.hold_id}`)).body.order_number).toBe(
      body.order_number,
    );

    const paid = await service.deliver({
      type: 'payment.succeeded',
      timestamp: new Date().toISOString(),
      data: {
        payment_id: randomUUID(),
        order_number: body.order_number,
        amount_minor: 5099,
        currency: 'EUR',
      },
    });
    expect(paid.status, paid.text).toBe(200);
    await service.becomes(body.hold_id, 'CONFIRMED');
    expect((await service.get<Order>(path)).body.status).toBe('paid');
  });

  it('the repeat of an order shows the same number, and an unknown number or another buyer is 404', async () => {
    const sku = await service.product([5]);
    const [buyer, key] = ['ann', randomUUID()];
    const of = { buyer, key, path: '/v1/orders' };
    const first = await service.checkout<Order>({ [sku]: 1 }, of);
    const again = await service.checkout<Order>({ [sku]: 1 }, of);
    expect([again.status, again.body.order_number]).toEqual([200, first.body.order_number]);
    expect(first.body.total).toBeNull();
    const path = `/v1/orders/${first.body.order_number}`;
    expect((await service.get(`${path}?buyer_id=ann`)).status).toBe(200);
    for (const other of [`${path}?buyer_id=ben`, '/v1/orders/NONE', '/v1/orders/%27;--']) {
      const answer = await service.get(other);
      expect([answer.status, answer.body.code]).toEqual([404, 'ORDER_NOT_FOUND']);
    }
  });

  it('an order in two currencies is 422 MIXED_CURRENCIES; a hold without lines is 400 and names `lines`, and so is an order with none in its list', async () => {
    const a = await service.product([5], { price: { amount_minor: 1, currency: 'EUR' } });
    const b = await service.product([5], { price: { amount_minor: 1, currency: 'IDR' } });
    const mixed = await service.checkout({ [a]: 1, [b]: 1 }, { path: '/v1/orders' });
    expect([mixed.status, mixed.body.code]).toEqual([422, 'MIXED_CURRENCIES']);
    expect((await service.checkout({ [a]: 1, [b]: 1 })).status).toBe(201);
    const without = [
      ['/v1/holds', { buyer_id: 'ann' }],
      ['/v1/orders', { buyer_id: 'ann', lines: [] }],
      ['/v1/orders', { buyer_id: 'ann', lines: null }],
    ] as const;
    for (const [path, body] of without) {
      const none = await service.post<Hold>(path, body, { idempotencyKey: 'k' });
      expect([none.status, none.body.code, none.body.errors[0]!.field]).toEqual([
        400,
        'INVALID_REQUEST',
        'lines',
      ]);
    }
  });
});
