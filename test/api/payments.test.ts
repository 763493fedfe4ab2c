import { randomBytes, randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { forge } from './forged.js';
import { atOnce, sharedService, signed, statuses, succeeded } from './service.js';
import type { Answer, Order } from './service.js';

const service = sharedService();

function raw(body: string | Buffer, headers: Record<string, string>) {
  return service.send<{ outcome: string }>('POST', '/v1/payments/events', {
    key: null,
    raw: body,
    headers,
  });
}

/** All payments as they are stored. */
function payments(holdId: string) {
  return service.shop.query(
    'select payment_id, status, in_time, settlement from tahan.payments where hold_id = $1',
    [holdId],
  );
}

describe('payment events', () => {
  it('R05, R34: a signed payment.succeeded within the window moves 2 units from held to sold', async () => {
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 2 });
    const answer = await service.paid(hold.id, { payment_id: `pay-${hold.id}` });
    expect([answer.status, answer.body]).toEqual([200, { outcome: 'RECORDED', hold_id: hold.id }]);
    const confirmed = await service.becomes(hold.id, 'CONFIRMED');
    expect(confirmed.payments).toMatchObject([
      { payment_id: `pay-${hold.id}`, in_time: true, settlement: 'APPLIED', provider: 'default' },
    ]);
    expect(await service.counts(sku)).toEqual({ available: 3, held: 0, sold: 2 });
    expect(await service.ledger(sku)).toEqual(['reserve 2 b1', 'confirm_sold 2 b1']);
  });

  it(
    'B07: evt_1 for 2 of 5 units, five times at once, again after 60 s and 1 h, and after a restart of API and worker: 3 on hand, 0 held, one confirmation, every answer 200',
    { timeout: 60_000 },
    async () => {
      const sku = await service.product([5]);
      const hold = await service.hold({ [sku]: 2 });
      const event = succeeded({ hold_id: hold.id });
      const once = (at?: Date) =>
        service.deliver(event, { id: `evt_1-${hold.id}`, ...(at && { at }) });
      const answers: Answer<{ outcome: string }>[] = await atOnce(5, () => once());
      expect(answers.filter(({ body }) => body.outcome === 'RECORDED')).toHaveLength(1);
      await service.becomes(hold.id, 'CONFIRMED');
      answers.push(await once());
      await service.shop.shiftClock(60_000);
      answers.push(await once());
      await service.shop.shiftClock(3_600_000);
      answers.push(await once());
      await service.engine.stop();
      await service.restartApi();
      await service.engine.start();
      answers.push(await once());
      expect(statuses(answers)).toEqual({ 200: 9 });
      expect(await service.counts(sku)).toEqual({ available: 3, held: 0, sold: 2 });
      expect(await service.ledger(sku)).toEqual(['reserve 2 b1', 'confirm_sold 2 b1']);
      expect(await payments(hold.id)).toHaveLength(1);
    },
  );

  it('a repeat passes on again what was stored but not passed on (F16): the hold is confirmed', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const event = succeeded({ hold_id: hold.id, payment_id: `p-${hold.id}` });
    await service.shop.pay(hold.id, { provider: 'default', paymentId: `p-${hold.id}` });
    const answer = await service.deliver(event);
    expect([answer.status, answer.body.outcome]).toEqual([200, 'DUPLICATE']);
    await service.becomes(hold.id, 'CONFIRMED');
  });

  it('B08, R11: a payment after the end is recorded as late and to be refunded; the hold stays EXPIRED', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } });
    await service.becomes(hold.id, 'EXPIRED');
    expect((await service.paid(hold.id)).status).toBe(200);
    const { body } = await service.get(`/v1/holds/${hold.id}`);
    expect(body.status).toBe('EXPIRED');
    expect(body.payments).toMatchObject([
      { in_time: false, settlement: 'REFUND_DUE', settlement_reason: 'LATE' },
    ]);
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 0 });
  });

  it('a late payment under accept_if_available confirms the EXPIRED hold: its workflow has ended, so a settlement of its own does it', async () => {
    const sku = await service.product([1], { late_payment: 'accept_if_available' });
    const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } });
    await service.becomes(hold.id, 'EXPIRED');
    await service.engine.holds.client.workflow.getHandle(hold.workflow_id).result();
    expect((await service.paid(hold.id)).status).toBe(200);
    const late = await service.becomes(hold.id, 'CONFIRMED');
    expect(late.payments).toMatchObject([{ in_time: false, settlement: 'ACCEPTED_LATE' }]);
    expect(await service.counts(sku)).toEqual({ available: 0, held: 0, sold: 1 });
  });

  it('a second payment of a confirmed hold is to be refunded, and no unit moves', async () => {
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 1 });
    await service.paid(hold.id);
    await service.becomes(hold.id, 'CONFIRMED');
    expect((await service.paid(hold.id)).status).toBe(200);
    const { body } = await service.get(`/v1/holds/${hold.id}`);
    expect(body.payments.map(({ settlement }) => settlement).sort()).toEqual([
      'APPLIED',
      'REFUND_DUE',
    ]);
    expect(await service.counts(sku)).toEqual({ available: 4, held: 0, sold: 1 });
  });

  it('F23: 2,499 cents, or 2,500 of another currency, do not confirm an order of 2,500 EUR cents; the right amount then does', async () => {
    const sku = await service.product([5], { price: { amount_minor: 2500, currency: 'EUR' } });
    const { body: order } = await service.checkout<Order>({ [sku]: 1 }, { path: '/v1/orders' });
    for (const data of [{ amount_minor: 2499 }, { amount_minor: 2500, currency: 'USD' }]) {
      expect((await service.paid(order.hold_id, data)).status).toBe(200);
    }
    const { body } = await service.get(`/v1/holds/${order.hold_id}`);
    expect(body.status).toBe('HELD');
    expect(body.payments.map((one) => [one.settlement, one.settlement_reason])).toEqual([
      ['REFUND_DUE', 'MISMATCH'],
      ['REFUND_DUE', 'MISMATCH'],
    ]);
    await service.paid(order.hold_id, { amount_minor: 2500 });
    await service.becomes(order.hold_id, 'CONFIRMED');
  });

  it('F24: the same payment told by two webhooks and by a signal at once confirms its hold once, 10 of 10', async () => {
    const sku = await service.product([10]);
    for (let round = 1; round <= 10; round += 1) {
      const hold = await service.hold({ [sku]: 1 });
      const payment_id = randomUUID();
      const money = { amountMinor: 1000, currency: 'EUR' };
      const handle = service.engine.holds.client.workflow.getHandle(hold.workflow_id);
      const [first, second] = await Promise.all([
        service.paid(hold.id, { payment_id }),
        service.paid(hold.id, { payment_id }),
        handle.signal('paymentReceived', { provider: 'default', paymentId: payment_id, ...money }),
      ]);
      expect([first.status, second.status]).toEqual([200, 200]);
      const confirmed = await service.becomes(hold.id, 'CONFIRMED');
      expect(confirmed.payments).toMatchObject([{ payment_id, settlement: 'APPLIED' }]);
    }
    expect(await service.counts(sku)).toEqual({ available: 0, held: 0, sold: 10 });
  });

  it('F22: payment.failed leaves the hold as it is, also after a success; a success after a failure confirms', async () => {
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 1 });
    const data = { payment_id: randomUUID() };
    const failed = { ...succeeded({ hold_id: hold.id, ...data }), type: 'payment.failed' };
    expect((await service.deliver(failed)).status).toBe(200);
    expect((await service.get(`/v1/holds/${hold.id}`)).body.status).toBe('HELD');
    await service.paid(hold.id, data);
    await service.becomes(hold.id, 'CONFIRMED');
    expect((await service.deliver(failed)).status).toBe(200);
    expect((await service.get(`/v1/holds/${hold.id}`)).body.payments).toMatchObject([
      { status: 'succeeded', settlement: 'APPLIED' },
    ]);
  });

  it('B09: an event for a hold that does not exist is 404, so that its sender repeats, and is kept; once the hold exists it confirms it', async () => {
    const sku = await service.product([1]);
    const never = await service.paid(randomUUID());
    expect([never.status, never.body.code]).toEqual([404, 'HOLD_NOT_FOUND']);
    const noOrder = await service.deliver(succeeded({ order_number: 'NONE' }));
    expect([noOrder.status, noOrder.body.code]).toEqual([404, 'ORDER_NOT_FOUND']);
    const [buyer, key] = ['early', randomUUID()];
    const holdId = await service.holdIdOf(buyer, key);
    const event = succeeded({ hold_id: holdId });
    expect((await service.deliver(event, { id: `early-${key}` })).status).toBe(404);
    await service.hold({ [sku]: 1 }, { buyer, key });
    expect((await service.deliver(event, { id: `early-${key}` })).status).toBe(200);
    await service.becomes(holdId, 'CONFIRMED');
    const kept = await service.shop.query(
      'select hold_id from tahan.payment_events where event_id = $1',
      [`early-${key}`],
    );
    expect(kept).toEqual([{ hold_id: holdId }]);
  });

  it('S5: a payment id of one hold is 409 for another, and confirms only the first', async () => {
    const sku = await service.product([5]);
    const [first, second] = [await service.hold({ [sku]: 1 }), await service.hold({ [sku]: 1 })];
    const data = { payment_id: randomUUID() };
    await service.paid(first.id, data);
    const swapped = await service.paid(second.id, data);
    expect([swapped.status, swapped.body.code]).toEqual([409, 'PAYMENT_OF_OTHER_HOLD']);
    await service.becomes(first.id, 'CONFIRMED');
    expect((await service.get(`/v1/holds/${second.id}`)).body.status).toBe('HELD');
  });

  it('an event of another type is 200 and changes nothing', async () => {
    const before = await everything(service.shop);
    const answer = await service.deliver({ type: 'payout.created', data: { any: 'thing' } });
    expect([answer.status, answer.body]).toEqual([200, { outcome: 'IGNORED', hold_id: null }]);
    expect(await everything(service.shop)).toEqual(before);
  });

  it('a signed event that is not one is 400 with its faults named, and changes nothing', async () => {
    const sku = await service.product([1]);
    const { id } = await service.hold({ [sku]: 1 });
    const before = await everything(service.shop);
    const events = [
      {},
      { type: 5 },
      { type: 'payment.succeeded' },
      succeeded({}),
      succeeded({ hold_id: id, order_number: 'X' }),
      succeeded({ hold_id: '1' }),
      succeeded({ hold_id: id, amount_minor: -1 }),
      succeeded({ hold_id: id, amount_minor: '1000' }),
      succeeded({ hold_id: id, amount_minor: 10.5 }),
      succeeded({ hold_id: id, amount_minor: 9007199254740993 }),
      succeeded({ hold_id: id, currency: 'eur' }),
      succeeded({ hold_id: id, currency: 'EURO' }),
      succeeded({ hold_id: id, payment_id: '' }),
      succeeded({ hold_id: id, payment_id: 'a\0b' }),
      succeeded({ hold_id: id, note: 'a\ud800b' }),
      succeeded({ hold_id: id, provider: 'a b' }),
      [],
      null,
      'text',
    ];
    for (const event of events) {
      const answer = await service.deliver(event as object);
      expect([answer.status, answer.body.code], JSON.stringify(event)).toEqual([
        400,
        'INVALID_REQUEST',
      ]);
    }
    for (const text of ['', '{', '{"a":1}{', '\ufeff{}']) {
      const answer = await raw(text, signed(service.secret, text));
      expect(answer.status, text).toBeGreaterThanOrEqual(400);
      expect(answer.status).toBeLessThan(500);
    }
    expect(await everything(service.shop)).toEqual(before);
  });
});

describe('the signature of a delivery', () => {
  const refusedAs401 = (answer: Answer<unknown>): void => {
    expect([answer.status, answer.body.code], answer.text).toEqual([401, 'SIGNATURE_INVALID']);
  };

  it('S2: it is over the raw bytes: odd white space, unicode and field order verify as they were sent', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const text = `  {"data" :{ "currency":"EUR",\n\t"amount_minor": 1e3, "hold_id":"${hold.id}", "payment_id":"z\\u00e4 \u{1f39f} ü" },"timestamp":"x" , "type":"payment.succeeded"}  `;
    const answer = await raw(text, {
      ...signed(service.secret, text),
      'content-type': 'application/json; charset=utf-8',
    });
    expect(answer.status, answer.text).toBe(200);
    const confirmed = await service.becomes(hold.id, 'CONFIRMED');
    expect(confirmed.payments[0]).toMatchObject({
      payment_id: 'zä \u{1f39f} ü',
      amount_minor: 1000,
    });
  });

  it(
    'S1: of 1,200 deliveries with one bit of body, id, time or signature changed, 0 are accepted and 0 answered 5xx',
    { timeout: 120_000 },
    async () => {
      const sku = await service.product([1]);
      const hold = await service.hold({ [sku]: 1 });
      const { answers, untouched } = await forge(service, hold.id, 1200);
      expect(statuses(answers)).toEqual({ 401: answers.length });
      expect(await payments(hold.id)).toEqual([]);
      // The untouched delivery is good: the mutations were refused for being mutations.
      expect((await untouched()).status).toBe(200);
      await service.becomes(hold.id, 'CONFIRMED');
    },
  );

  it('S1: missing, empty and repeated headers, foreign and empty signatures, other versions and odd times are 401', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const text = JSON.stringify(succeeded({ hold_id: hold.id }));
    const good = signed(service.secret, text);
    const signature = good['webhook-signature']!;
    const time = good['webhook-timestamp']!;
    const changed: Record<string, string>[] = [
      ...Object.keys(good).flatMap((name) => [
        Object.fromEntries(Object.entries(good).filter(([other]) => other !== name)),
        { ...good, [name]: '' },
      ]),
      ...[
        'v1,',
        'v1',
        ',',
        signature.slice(0, -1),
        `${signature}=`,
        signature.replace('v1,', 'v1a,'),
        signature.replace('v1,', 'v2,'),
        signature.replace('v1,', ''),
        signature.toLowerCase(),
        'v1,undefined',
        'v1,null',
        signed(`whsec_${randomBytes(32).toString('base64')}`, text)['webhook-signature']!,
      ].map((value) => ({ ...good, 'webhook-signature': value })),
      ...[
        `${time}x`,
        `${time}.0`,
        `0${time}`,
        `+${time}`,
        `${time}e0`,
        '0',
        '-1',
        'NaN',
        `0x${Number(time).toString(16)}`,
      ].map((value) => ({ ...good, 'webhook-timestamp': value })),
      { ...good, 'webhook-id': `${good['webhook-id']}.` },
      {},
    ];
    for (const headers of changed) refusedAs401(await raw(text, headers));
    for (const name of Object.keys(good)) {
      const twice = [...Object.entries(good).flat(), name, good[name]!];
      const answer = await service.rawRequest('POST', '/v1/payments/events', twice, text);
      expect([answer.status, answer.body.code], name).toEqual([401, 'SIGNATURE_INVALID']);
    }
    refusedAs401(await raw(`${text} `, good));
    refusedAs401(await raw(Buffer.concat([Buffer.from(text), Buffer.from([0xff])]), good));
    expect(await payments(hold.id)).toEqual([]);
  });

  it('S3: a delivery signed 298 s ago or ahead is taken, one of 302 s is 401; after 6 days, signed afresh, it is a repeat', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const event = succeeded({ hold_id: hold.id });
    const id = `s3-${hold.id}`;
    const at = (seconds: number) => ({ id, at: new Date(Date.now() + seconds * 1000) });
    refusedAs401(await service.deliver(event, at(-302)));
    refusedAs401(await service.deliver(event, at(302)));
    expect(await payments(hold.id)).toEqual([]);
    const taken = [await service.deliver(event, at(-298)), await service.deliver(event, at(298))];
    expect(statuses(taken)).toEqual({ 200: 2 });
    await service.becomes(hold.id, 'CONFIRMED');
    await service.shop.shiftClock(6 * 86_400_000);
    const later = await service.deliver(event, at(0));
    expect([later.status, later.body.outcome]).toEqual([200, 'DUPLICATE']);
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1', 'confirm_sold 1 b1']);
  });

  it('several secrets are valid at once, and of several signatures one has to fit', async () => {
    const old = `whsec_${randomBytes(32).toString('base64')}`;
    await service.restartApi({ webhookSecrets: [service.secret, old] });
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 1 });
    const text = JSON.stringify(succeeded({ hold_id: hold.id }));
    expect((await raw(text, signed(old, text))).status).toBe(200);
    const foreign = signed(`whsec_${randomBytes(32).toString('base64')}`, text);
    const id = foreign['webhook-id']!;
    const good = signed(service.secret, text, { id })['webhook-signature']!;
    const both = `${foreign['webhook-signature']} v1a,abc ${good}`;
    expect((await raw(text, { ...foreign, 'webhook-signature': both })).status).toBe(200);
    await service.restartApi();
    refusedAs401(await raw(text, signed(old, text)));
  });

  it('a body of 256 KB is read, a larger one is 413', async () => {
    const pad = (size: number) => {
      const text = JSON.stringify({ type: 'other', pad: '' });
      return text.replace('""', `"${'x'.repeat(size - text.length)}"`);
    };
    const fits = pad(256 * 1024);
    expect((await raw(fits, signed(service.secret, fits))).status).toBe(200);
    const large = pad(256 * 1024 + 1);
    const answer = await raw(large, signed(service.secret, large));
    expect([answer.status, answer.body.code]).toEqual([413, 'BODY_TOO_LARGE']);
  });
});
