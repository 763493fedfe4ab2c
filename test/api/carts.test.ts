import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { sharedService, statuses, succeeded } from './service.js';
import type { Answer, Cart, Order, Page } from './service.js';

const service = sharedService();
const euros = (amount_minor: number) => ({ price: { amount_minor, currency: 'EUR' } });

const lineOf = (buyer: string, sku: string) =>
  `/v1/carts/${encodeURIComponent(buyer)}/lines/${encodeURIComponent(sku)}`;

function put(buyer: string, sku: string, quantity: number): Promise<Answer<Cart>> {
  return service.put<Cart>(lineOf(buyer, sku), { quantity }, { key: service.shopKey });
}

/** A cart with these lines, of a new buyer. */
async function fill(lines: Record<string, number>, buyer = `buyer-${randomUUID()}`) {
  for (const [sku, quantity] of Object.entries(lines)) {
    const answer = await put(buyer, sku, quantity);
    expect(answer.status, answer.text).toBe(200);
  }
  return buyer;
}

const unitsOf = (lines: { sku: string; quantity: number }[]) =>
  Object.fromEntries(lines.map(({ sku, quantity }) => [sku, quantity]));

async function cartOf(buyer: string): Promise<Record<string, number>> {
  return unitsOf((await service.get<Cart>(`/v1/carts/${buyer}`)).body.lines);
}

/** POST /v1/orders of the buyer's cart, once. */
function order(buyer: string, key: string = randomUUID(), fields = {}): Promise<Answer<Order>> {
  return service.post('/v1/orders', { buyer_id: buyer, ...fields }, { idempotencyKey: key });
}

/** The same as a shop does it: the key is repeated while the answer is "again" or "not known yet". */
async function placed(buyer: string, key: string = randomUUID()): Promise<Answer<Order>> {
  for (let tries = 1; ; tries += 1) {
    const answer = await order(buyer, key);
    if ((answer.status !== 503 && answer.status !== 202) || tries === 20) return answer;
  }
}

function pay(of: Order, amount_minor: number) {
  const data = { order_number: of.order_number, amount_minor, currency: 'EUR' };
  return service.deliver(succeeded(data));
}

describe('a cart', () => {
  it('R33, B04: the same product put twice is one line; every change answers with the cart, its prices of this moment and their sum', async () => {
    const a = await service.product([5], { name: 'Ticket', ...euros(2500) });
    const b = await service.product([5], euros(99));
    const buyer = `ann/${randomUUID()}@example.com`;
    await put(buyer, a, 1);
    await put(buyer, a, 3);
    const { status, body } = await put(buyer, b, 2);
    const line = { sku: a, quantity: 3, name: 'Ticket', active: true };
    const unit_price = { amount_minor: 2500, currency: 'EUR' };
    expect(status).toBe(200);
    expect(body.lines.find(({ sku }) => sku === a)).toEqual({ ...line, unit_price });
    expect(body.totals).toEqual([{ amount_minor: 7698, currency: 'EUR' }]);
    expect(await service.counts(a)).toEqual({ available: 5, held: 0, sold: 0 });

    const path = `/v1/carts/${encodeURIComponent(buyer)}`;
    const answers = [
      await service.send<Cart>('DELETE', lineOf(buyer, a)),
      await service.send<Cart>('DELETE', lineOf(buyer, a)),
      await service.send<Cart>('DELETE', path),
      await service.send<Cart>('DELETE', path),
      await service.get<Cart>(path),
    ];
    expect(answers.map(({ body }) => unitsOf(body.lines))).toEqual([
      { [b]: 2 },
      { [b]: 2 },
      {},
      {},
      {},
    ]);
    expect(answers.at(-1)!.body).toEqual({ buyer_id: buyer, lines: [], totals: [] });
  });

  it('R33: an inactive product is not put, and a 51st product is 409 CART_FULL', async () => {
    const off = await service.product([5], { active: false });
    const refused = await put('x', off, 1);
    expect([refused.status, refused.body.code]).toEqual([409, 'PRODUCT_INACTIVE']);
    const skus = Array.from({ length: 51 }, (_, index) => `FULL-${index}`);
    await service.shop.query('insert into tahan.products (sku) select unnest($1::text[])', [skus]);
    const answers: Answer<Cart>[] = [];
    for (const sku of skus) answers.push(await put('collector', sku, 1));
    expect(statuses(answers)).toEqual({ 200: 50, 409: 1 });
    expect(answers.at(-1)!.body.code).toBe('CART_FULL');
    expect(Object.keys(await cartOf('collector'))).toHaveLength(50);
  });
});

describe('an order of a cart', () => {
  it('R33: it takes the lines at the prices of its moment and empties the cart; its workflow names what was in it', async () => {
    const a = await service.product([5], euros(2500));
    const b = await service.product([5], euros(99));
    const buyer = await fill({ [a]: 2, [b]: 1 });
    const key = randomUUID();
    const { status, body, headers, text } = await placed(buyer, key);
    expect(status, text).toBe(201);
    expect(body).toMatchObject({
      status: 'pending_payment',
      buyer_id: buyer,
      total: { amount_minor: 5099, currency: 'EUR' },
      closed_at: null,
    });
    expect(unitsOf(body.lines)).toEqual({ [a]: 2, [b]: 1 });
    expect(headers['location']).toBe(`/v1/orders/${body.order_number}`);
    expect(Date.parse(body.reservation_expires_at!) - Date.parse(body.placed_at)).toBe(600_000);
    expect(await cartOf(buyer)).toEqual({});
    expect(await service.counts(a)).toEqual({ available: 3, held: 2, sold: 0 });
    const handle = service.engine.holds.client.workflow.getHandle(body.workflow_id);
    const { searchAttributes } = await handle.describe();
    expect(searchAttributes['HoldSkus']).toEqual([a, b].sort());

    // The key stands for this order, whatever is in the cart now; with lines it is another request.
    await fill({ [b]: 3 }, buyer);
    const again = await order(buyer, key);
    expect([again.status, again.body.order_number]).toEqual([200, body.order_number]);
    expect(again.headers['idempotent-replayed']).toBe('true');
    const reused = await order(buyer, key, { lines: [{ sku: a, quantity: 2 }] });
    expect([reused.status, reused.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    expect(await cartOf(buyer)).toEqual({ [b]: 3 });
    const small = await service.get<Order>(`/v1/orders/${body.order_number.toLowerCase()}`);
    expect(small.body.order_number).toBe(body.order_number);
  });

  it('R33: 20 orders of one cart at once, each with a key of its own, are one order and 19 times 422 CART_EMPTY, for ever', async () => {
    const sku = await service.product([100], euros(100));
    const buyer = await fill({ [sku]: 2 });
    const keys = Array.from({ length: 20 }, () => randomUUID());
    const answers = await Promise.all(keys.map((key) => placed(buyer, key)));
    expect(statuses(answers)).toEqual({ 201: 1, 422: 19 });
    const empty = answers.findIndex(({ status }) => status === 422);
    expect(answers[empty]!.body.code).toBe('CART_EMPTY');
    expect(await service.counts(sku)).toEqual({ available: 98, held: 2, sold: 0 });
    await fill({ [sku]: 1 }, buyer);
    const again = await order(buyer, keys[empty]);
    expect([again.status, again.body.code]).toEqual([422, 'CART_EMPTY']);
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(await cartOf(buyer)).toEqual({ [sku]: 1 });
  });

  it('R33, B11: a product that was switched off, one line short, two currencies: refused as a whole, and nothing has changed, the cart neither', async () => {
    const a = await service.product([5], euros(100));
    const short = await service.product([1], euros(100));
    const off = await service.product([5], euros(100));
    const dollar = await service.product([5], { price: { amount_minor: 1, currency: 'USD' } });
    const refused: [buyer: string, status: number, code: string, members: object][] = [
      [
        await fill({ [a]: 1, [short]: 2 }),
        409,
        'INSUFFICIENT_STOCK',
        { shortfalls: [{ sku: short, requested: 2, available: 1 }] },
      ],
      [await fill({ [a]: 1, [off]: 1 }), 409, 'PRODUCT_INACTIVE', { sku: off }],
      [
        await fill({ [a]: 1, [dollar]: 1 }),
        422,
        'MIXED_CURRENCIES',
        { currencies: ['EUR', 'USD'] },
      ],
    ];
    await service.put(`/v1/products/${off}`, { active: false, reason: 'season is over' });
    const before = await everything(service.shop);
    for (const [buyer, status, code, members] of refused) {
      const answer = await placed(buyer);
      expect([answer.status, answer.body.code], answer.text).toEqual([status, code]);
      expect(answer.body).toMatchObject(members);
    }
    expect(await everything(service.shop)).toEqual(before);
    const { lines } = (await service.get<Cart>(`/v1/carts/${refused[1]![0]}`)).body;
    expect(lines.map(({ sku, active }) => [sku, active]).sort()).toEqual(
      [
        [a, true],
        [off, false],
      ].sort(),
    );
  });

  it('R33, F23: the price of its moment is what is to be paid: after a change the new price is a mismatch, and the old one confirms', async () => {
    const sku = await service.product([5], euros(1000));
    const { body } = await placed(await fill({ [sku]: 2 }));
    await service.put(`/v1/products/${sku}`, { ...euros(700), reason: 'sale' });
    expect((await pay(body, 1400)).status).toBe(200);
    const path = `/v1/orders/${body.order_number}`;
    const unpaid = await service.get<Order>(path);
    expect(unpaid.body).toMatchObject({
      status: 'pending_payment',
      total: { amount_minor: 2000, currency: 'EUR' },
      lines: [{ unit_price: { amount_minor: 1000, currency: 'EUR' } }],
      payments: [{ settlement: 'REFUND_DUE', settlement_reason: 'MISMATCH' }],
    });
    expect((await pay(body, 2000)).status).toBe(200);
    await service.becomes(body.hold_id, 'CONFIRMED');
    const paid = await service.get<Order>(path);
    expect([paid.body.status, paid.body.total?.amount_minor]).toEqual(['paid', 2000]);
    expect(paid.body.closed_at).not.toBeNull();
  });

  it('R33, F8: while the worker is away it is CHECKOUT_TIMED_OUT and the cart stays as it is; the same key then orders what is in it', async () => {
    const sku = await service.product([5], euros(100));
    const buyer = await fill({ [sku]: 2 });
    const key = randomUUID();
    await service.engine.stop();
    try {
      const away = await order(buyer, key);
      expect([away.status, away.body.code]).toEqual([503, 'CHECKOUT_TIMED_OUT']);
      expect(away.took).toBeLessThan(5000);
      expect(await cartOf(buyer)).toEqual({ [sku]: 2 });
    } finally {
      await service.engine.start();
    }
    await put(buyer, sku, 3);
    const { status, body } = await placed(buyer, key);
    expect([status, unitsOf(body.lines), await cartOf(buyer)]).toEqual([201, { [sku]: 3 }, {}]);
    expect(await service.counts(sku)).toEqual({ available: 2, held: 3, sold: 0 });
  });
});

it('R33: hold_seconds above what the products in the cart allow is 422, and the same key without it orders', async () => {
  const sku = await service.product([5], { ...euros(100), max_hold_seconds: 900 });
  const [buyer, key] = [await fill({ [sku]: 1 }), randomUUID()];
  const tooLong = await order(buyer, key, { hold_seconds: 901 });
  expect([tooLong.status, tooLong.body.code]).toEqual([422, 'INVALID_HOLD_SECONDS']);
  expect(tooLong.body).toMatchObject({ max_hold_seconds: 900 });
  expect(await cartOf(buyer)).toEqual({ [sku]: 1 });
  expect((await placed(buyer, key)).status).toBe(201);
});

describe('GET /v1/orders', () => {
  it('R33, R39: a shop lists the orders of a buyer whom it names, an operator those of all, newest first, in pages, by status', async () => {
    const sku = await service.product([50], euros(100));
    const buyer = `lister-${randomUUID()}`;
    const numbers: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      numbers.push((await placed(await fill({ [sku]: 1 }, buyer))).body.order_number);
    }
    const other = (await placed(await fill({ [sku]: 1 }))).body;
    await service.hold({ [sku]: 1 }, { buyer });
    await placed(buyer); // CART_EMPTY, and no order
    const first = (await service.get<Order>(`/v1/orders/${numbers[0]}`)).body;
    await service.post(`/v1/holds/${first.hold_id}/cancel`, { reason: 'no more' });

    const list = async (query: string, key = service.shopKey) => {
      const answer = await service.get<Page<Order>>(`/v1/orders${query}`, { key });
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    };
    const found = ({ items }: Page<Order>) => items.map((each) => each.order_number);
    const newest = [...numbers].reverse();
    expect(found(await list(`?buyer_id=${buyer}`))).toEqual(newest);
    expect(found(await list(`?buyer_id=${buyer}&status=cancelled`))).toEqual([numbers[0]]);
    expect(found(await list(`?buyer_id=${buyer}&status=paid`))).toEqual([]);
    expect(found(await list('?buyer_id=nobody'))).toEqual([]);
    const two = await list(`?buyer_id=${buyer}&limit=2`);
    const rest = await list(`?buyer_id=${buyer}&limit=2&cursor=${two.next_cursor}`);
    expect([found(two), found(rest), rest.next_cursor]).toEqual([
      newest.slice(0, 2),
      newest.slice(2),
      null,
    ]);
    const all = await list('?limit=4', service.operatorKey);
    expect(found(all)).toEqual([other.order_number, ...newest]);
    expect(all.items[0]).toMatchObject({ lines: other.lines, total: other.total });

    const everyone = await service.get('/v1/orders');
    expect([everyone.status, everyone.body.code]).toEqual([403, 'FORBIDDEN']);
    expect(everyone.body.detail).toContain('name `buyer_id`');
    const status = await service.get('/v1/orders?status=paid');
    expect([status.status, status.body.code]).toEqual([403, 'FORBIDDEN']);
  });
});
