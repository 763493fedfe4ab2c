import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { interceptedService } from './between.js';
import { statuses } from './service.js';

const { service, put, asked, barrier } = interceptedService({ claimsInFlight: 200 });
const operator = () => ({ key: service.operatorKey });
const holdsOf = async (buyer: string) =>
  (await service.get<{ items: object[] }>(`/v1/holds?buyer_id=${buyer}`, operator())).body.items;
const codes = (answers: { body: { code: string } }[]) => answers.map(({ body }) => body.code);

describe('sold out (R14, B03)', () => {
  it('R12: with nothing to sell a checkout is refused without a workflow, and nothing is kept of it: after a restock the same key gets the unit', async () => {
    const sku = await service.product([0]);
    const of = { buyer: `b-${randomUUID()}`, key: randomUUID() };
    const before = asked();
    for (let times = 0; times < 2; times += 1) {
      const { status, body, headers } = await service.attempt({ [sku]: 1 }, of);
      expect([status, body.code, body.shortfalls]).toEqual([
        409,
        'INSUFFICIENT_STOCK',
        [{ sku, requested: 1, available: 0 }],
      ]);
      expect(headers['idempotent-replayed']).toBeUndefined();
    }
    expect([asked() - before, await holdsOf(of.buyer)]).toEqual([0, []]);
    const bin = `/v1/products/${sku}/bins/b1/restock`;
    await service.post(bin, { quantity: 1, reason: 'found one' }, operator());
    expect((await service.attempt({ [sku]: 1 }, of)).status).toBe(201);
  });

  it('B01: of 60 buyers of the last unit one starts a workflow and is held, the others hear of it together', async () => {
    const sku = await service.product([1]);
    const before = asked();
    const { open, whenArrived } = barrier();
    const all = Array.from({ length: 60 }, () => service.attempt({ [sku]: 1 }));
    await whenArrived(1);
    open();
    expect(statuses(await Promise.all(all))).toEqual({ 201: 1, 409: 59 });
    expect(asked() - before).toBe(1);
  });

  it('R08: a buyer who holds gets his hold by his key, whatever is sold out and whoever waits', async () => {
    const sku = await service.product([2]);
    const of = { buyer: 'mine', key: randomUUID() };
    const mine = await service.hold({ [sku]: 1 }, of);
    const { open, whenArrived } = barrier();
    const last = service.attempt({ [sku]: 1 });
    await whenArrived(1);
    const waits = service.attempt({ [sku]: 1 });
    const again = await service.attempt({ [sku]: 1 }, of);
    expect([again.status, again.body.id]).toEqual([200, mine.id]);
    open();
    expect([(await last).status, (await waits).status]).toEqual([201, 409]);
    expect((await service.attempt({ [sku]: 1 }, of)).body.id).toBe(mine.id);
  });

  it('an order of two products names the one that is short; who wants another product does not wait', async () => {
    const [a, b, c] = [
      await service.product([1]),
      await service.product([0]),
      await service.product([1]),
    ];
    const short = await service.attempt({ [a]: 1, [b]: 2 });
    expect(short.body.shortfalls).toEqual([{ sku: b, requested: 2, available: 0 }]);
    const { open, whenArrived } = barrier();
    const first = service.attempt({ [a]: 1 });
    await whenArrived(1);
    const second = service.attempt({ [a]: 1 });
    const other = service.attempt({ [c]: 1 });
    await whenArrived(2);
    open();
    expect(statuses(await Promise.all([first, second, other]))).toEqual({ 201: 2, 409: 1 });
  });

  it('R33: a cart is looked at too, and stays as it is', async () => {
    const sku = await service.product([1]);
    const buyer = `cart-${randomUUID()}`;
    await service.send('PUT', `/v1/carts/${buyer}/lines/${sku}`, { body: { quantity: 2 } });
    const before = asked();
    const order = () =>
      service.post('/v1/orders', { buyer_id: buyer }, { idempotencyKey: randomUUID() });
    const short = await order();
    expect([short.status, short.body.shortfalls, asked() - before]).toEqual([
      409,
      [{ sku, requested: 2, available: 1 }],
      0,
    ]);
    await service.send('PUT', `/v1/carts/${buyer}/lines/${sku}`, { body: { quantity: 1 } });
    expect((await order()).status).toBe(201);
  });
});

describe('it opens again by itself, since it counts in Postgres (R14, R07)', () => {
  it('after a release, and after an end whose expiry has not run', async () => {
    const sku = await service.product([1]);
    const first = await service.hold({ [sku]: 1 });
    expect((await service.attempt({ [sku]: 1 })).status).toBe(409);
    await service.post(`/v1/holds/${first.id}/cancel`, { reason: 'changed my mind' });
    const second = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 60 } });
    await service.engine.holds.client.workflow.getHandle(second.workflow_id).terminate('test');
    expect((await service.attempt({ [sku]: 1 })).status).toBe(409);
    await service.shop.shiftClock(61_000);
    expect((await service.attempt({ [sku]: 1 })).status).toBe(201);
    expect((await service.get(`/v1/holds/${second.id}`)).body.status).toBe('EXPIRED');
  });

  it('after a claim that failed: the next who waits gets the unit', async () => {
    const sku = await service.product([1]);
    let open!: () => void;
    const opened = new Promise<void>((resolve) => (open = resolve));
    let first = true;
    put(async (pass) => {
      if (!first) return pass();
      first = false;
      await opened;
      // Nothing was sent, and that is certain.
      return { outcome: 'UNAVAILABLE', detail: 'test', certain: true };
    });
    const failed = service.attempt({ [sku]: 1 });
    while (first) await new Promise((again) => setTimeout(again, 5));
    const [second, third] = [service.attempt({ [sku]: 1 }), service.attempt({ [sku]: 1 })];
    // Both wait once an answer that came after them is there.
    await service.attempt({ [await service.product([0])]: 1 });
    open();
    expect((await failed).body.code).toBe('WORKFLOW_UNAVAILABLE');
    expect(statuses(await Promise.all([second, third]))).toEqual({ 201: 1, 409: 1 });
  });

  it('F8: after the end of a process that had claims under way, in the next one at once', async () => {
    const sku = await service.product([1]);
    const { open, whenArrived } = barrier();
    const lost = service.attempt({ [sku]: 1 }).catch(() => undefined);
    await whenArrived(1);
    await service.restartApi();
    put((pass) => pass());
    expect((await service.attempt({ [sku]: 1 })).status).toBe(201);
    open();
    await lost;
    expect(await service.counts(sku)).toEqual({ available: 0, held: 1, sold: 0 });
  });
});

describe('waiting has an end (R14, F8)', () => {
  it('1.5 s after his request a buyer is told SALE_BUSY and when to come again, while the last unit is under way; nothing is kept of it', async () => {
    const sku = await service.product([1]);
    const { open, whenArrived } = barrier();
    const first = service.attempt({ [sku]: 1 });
    await whenArrived(1);
    const of = { buyer: 'waits', key: randomUUID() };
    const busy = await service.attempt({ [sku]: 1 }, of);
    expect([busy.status, busy.body.code, busy.headers['retry-after']]).toEqual([
      503,
      'SALE_BUSY',
      '1',
    ]);
    expect(busy.took).toBeGreaterThan(1400);
    expect(busy.took).toBeLessThan(5000);
    open();
    await first;
    expect((await service.attempt({ [sku]: 1 }, of)).status).toBe(409);
  });

  it('with units for all, more than the engine is thought to finish are told SALE_BUSY at once', async () => {
    const sku = await service.product([1000]);
    const { open, whenArrived } = barrier();
    const all = Array.from({ length: 80 }, () => service.attempt({ [sku]: 1 }));
    // 32 are under way and as many wait before anything is measured.
    await whenArrived(32);
    const sent = await Promise.race(all);
    expect([sent.body.code, sent.took < 1400]).toEqual(['SALE_BUSY', true]);
    open();
    const answers = await Promise.all(all);
    const { 201: held, 503: busy } = statuses(answers);
    // On a busy machine some of those who wait are told 503 before the barrier opens.
    expect([held! >= 32 && held! <= 64, held! + busy!]).toEqual([true, 80]);
  });
});

describe('limits per buyer, from the same read (R10)', () => {
  it('B17: a buyer over the limit is refused without a workflow, and has his allowance back when a hold of his has ended, whether or not its expiry ran', async () => {
    const sku = await service.product([9], { per_buyer_limit: 2 });
    const buyer = `l-${randomUUID()}`;
    const hold = await service.hold({ [sku]: 2 }, { buyer, fields: { hold_seconds: 60 } });
    const before = asked();
    const refused = await service.attempt({ [sku]: 1 }, { buyer });
    expect([refused.status, refused.body.code, asked() - before]).toEqual([
      409,
      'BUYER_LIMIT_EXCEEDED',
      0,
    ]);
    await service.engine.holds.client.workflow.getHandle(hold.workflow_id).terminate('test');
    await service.shop.shiftClock(61_000);
    expect((await service.attempt({ [sku]: 2 }, { buyer })).status).toBe(201);
  });

  it('S11: so is one whom a rule of the installation refuses', async () => {
    const sku = await service.product([9]);
    const buyer = `r-${randomUUID()}`;
    await service.put('/v1/settings/buyer-rules', { max_open_holds: 1, reason: 'test' });
    try {
      await service.hold({ [sku]: 1 }, { buyer });
      const before = asked();
      const refused = await service.attempt({ [sku]: 1 }, { buyer });
      expect([...codes([refused]), asked() - before]).toEqual(['BUYER_LIMIT_EXCEEDED', 0]);
    } finally {
      await service.put('/v1/settings/buyer-rules', { max_open_holds: null, reason: 'test' });
    }
  });
});

describe('two API processes at once (R14, B01)', () => {
  it('80 buyers of 5 units at both: 5 are held, all others are refused, none of them falsely', async () => {
    const sku = await service.product([5]);
    const second = await service.anotherApi();
    const url = service.url();
    const attempts = Array.from({ length: 80 }, (_, index) =>
      service.checkout({ [sku]: 1 }, { at: index % 2 === 0 ? url : second.url }),
    );
    const answers = await Promise.all(attempts);
    await second.close();
    expect(statuses(answers)).toEqual({ 201: 5, 409: 75 });
    expect(await service.counts(sku)).toEqual({ available: 0, held: 5, sold: 0 });
  });

  it('R08, B03: whose key another process decides is not refused after a wait for what that key has won', async () => {
    const sku = await service.product([1]);
    const second = await service.anotherApi();
    const doors: (() => void)[] = [];
    put(async (pass) => {
      await new Promise<void>((open) => doors.push(open));
      return pass();
    });
    const whenAtTheDoor = async (count: number) => {
      while (doors.length < count) await new Promise((again) => setTimeout(again, 5));
    };
    const mine = { buyer: `m-${randomUUID()}`, key: randomUUID() };
    const first = service.attempt({ [sku]: 1 }, mine);
    await whenAtTheDoor(1);
    const rival = service.attempt({ [sku]: 1 }, { at: second.url });
    await whenAtTheDoor(2);
    const again = service.attempt({ [sku]: 1 }, { ...mine, at: second.url });
    // It waits once an answer that came after it is there.
    await service.attempt({ [await service.product([0])]: 1 }, { at: second.url });
    doors[0]!();
    const { status, body } = await first;
    doors[1]!();
    const answers = [status, (await rival).status, (await again).status];
    expect([answers, (await again).body.id]).toEqual([[201, 409, 200], body.id]);
    await second.close();
  });
});
