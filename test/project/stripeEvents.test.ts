import { Stripe } from 'stripe';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { stripeEvent } from '../../api/stripe.js';
import type { Problem } from '../../api/errors.js';
import { theOne } from '../../api/headers.js';
import { dice } from '../model/dice.js';
import { recorded } from './stripe/double.js';

const secret = 'whsec_3b1fTahanSecretOfTheEndpoint0001';
const older = 'whsec_9c4eTahanSecretOfTheEndpoint0000';
const now = 1_796_000_400;

beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'], now: now * 1000 }));
afterEach(() => void vi.useRealTimers());

const types = ['payment_intent.succeeded', 'payment_intent.payment_failed', 'charge.refunded'];

interface Event {
  [field: string]: unknown;
  data: { object: Record<string, unknown> };
}

/** A recorded event, the fields of its object changed. */
function event(type: string, fields: Record<string, unknown> = {}, top: object = {}): Buffer {
  const body = recorded<Event>(type);
  Object.assign(body.data.object, fields);
  return Buffer.from(JSON.stringify({ ...body, ...top }, null, 2)); // as Stripe sends it
}

function header(raw: Buffer, { at = now, by = secret, scheme = 'v1' } = {}): string {
  const payload = raw.toString();
  return Stripe.webhooks.generateTestHeaderString({ payload, secret: by, timestamp: at, scheme });
}

const signature = (raw: Buffer, by = secret) => header(raw, { by }).split('v1=')[1]!;

function read(raw: Buffer, head: string | undefined = header(raw), secrets = [secret]) {
  return stripeEvent(raw, head, secrets, 300);
}

/** The code of the problem, or what was accepted. */
function codeOf(ask: () => unknown): unknown {
  try {
    return ask();
  } catch (error) {
    return (error as Problem).code;
  }
}

describe('what an event says', () => {
  it('payment_intent.succeeded is a payment of its hold, with the amount that was received', () => {
    const raw = event('payment_intent.succeeded', { amount: 3000 });
    expect(read(raw)).toMatchObject({
      outcome: 'PAYMENT',
      partial: false,
      event: {
        provider: 'stripe',
        paymentId: 'pi_3TahanIntent00000000001',
        eventId: 'evt_3TahanSucceeded00000001',
        status: 'succeeded',
        holdId: '6f9b4c5e-0d6b-5e0c-9b7a-2f6e2b1c3d4e',
        orderNumber: null,
        amountMinor: 2500,
        currency: 'EUR',
      },
    });
  });

  it('payment_intent.payment_failed is a failure of its order, with the amount that was asked for', () => {
    expect(read(event('payment_intent.payment_failed'))).toMatchObject({
      outcome: 'PAYMENT',
      event: {
        status: 'failed',
        holdId: null,
        orderNumber: 'K7M2QX9PWD4R',
        amountMinor: 1990,
        currency: 'USD',
      },
    });
  });

  it('charge.refunded is told of its PaymentIntent, in full or in part', () => {
    const event1 = {
      paymentId: 'pi_3TahanIntent00000000001',
      status: 'refunded',
      amountMinor: 2500,
    };
    const full = { outcome: 'PAYMENT', partial: false, event: event1 };
    expect(read(event('charge.refunded'))).toMatchObject(full);
    const payment_intent = { id: event1.paymentId, object: 'payment_intent', amount: 2500 };
    expect(read(event('charge.refunded', { payment_intent }))).toMatchObject(full);
    const part = event('charge.refunded', { amount_refunded: 700, refunded: false });
    expect(read(part)).toMatchObject({ partial: true, event: { ...event1, amountMinor: 700 } });
  });

  it('a charge without a PaymentIntent, and any other type, is IGNORED, whatever its form', () => {
    const type = 'charge.refunded';
    expect(read(event(type, { payment_intent: null }))).toEqual({ outcome: 'IGNORED', type });
    for (const other of ['refund.failed', 'refund.updated', 'charge.refund.updated', 'ping']) {
      const raw = Buffer.from(JSON.stringify({ object: 'event', type: other, data: 7 }));
      expect(read(raw)).toEqual({ outcome: 'IGNORED', type: other });
    }
  });

  it.each(types)('%s that names no hold or order is told as NO_REFERENCE', (type) => {
    const { id, data } = recorded<Event>(type);
    const paymentId = data.object['payment_intent'] ?? data.object['id'];
    const expected = { outcome: 'NO_REFERENCE', type, eventId: id, paymentId };
    const nothing = [null, undefined, {}, { hold_id: '' }, { hold_id: 'room 7' }];
    for (const metadata of [...nothing, { order_number: '' }, { order_number: 'x'.repeat(41) }]) {
      expect(read(event(type, { metadata }))).toEqual(expected);
    }
  });

  it('the hold goes before the order number, which stands there for people', () => {
    const hold_id = '6f9b4c5e-0d6b-5e0c-9b7a-2f6e2b1c3d4e';
    const metadata = { hold_id, order_number: 'K7M2QX9PWD4R' };
    expect(read(event('payment_intent.succeeded', { metadata }))).toMatchObject({
      event: { holdId: hold_id, orderNumber: null },
    });
  });

  it.each(['JPY', 'KWD', 'ISK', 'UGX'])("%s stays in Stripe's smallest unit", (currency) => {
    const fields = { currency: currency.toLowerCase(), amount_received: 500 };
    expect(read(event('payment_intent.succeeded', fields))).toMatchObject({
      event: { amountMinor: 500, currency },
    });
  });

  it.each(types)('of %s no name, address, card or client secret is kept', (type) => {
    const kept = JSON.stringify(read(event(type)));
    expect(kept).toContain('"livemode":false');
    expect(kept).not.toMatch(/rosen|8001|4242|client_secret|declined/i);
  });

  const wrong: [string, Record<string, unknown>, object?][] = [
    ['an amount as text', { amount_received: '2500' }],
    ['an amount below zero', { amount_received: -1 }],
    ['a fraction', { amount_received: 0.5 }],
    ['more than an integer can hold', { amount_received: 2 ** 53 }],
    ['no amount', { amount_received: undefined }],
    ['a currency in upper case', { currency: 'EUR' }],
    ['an id of something else', { id: 'ch_3TahanCharge00000000001' }],
    ['an object of another kind', { object: 'charge' }],
    ['metadata that is a list', { metadata: [] }],
    ['metadata with a number', { metadata: { hold_id: 7 } }],
    ['an event without an id', {}, { id: undefined }],
    ['an event without data', {}, { data: null }],
    ['a type that is a list', {}, { type: ['payment_intent.succeeded'] }],
    ['a thin event', {}, { object: 'v2.core.event', type: 'v1.payment_intent.succeeded' }],
  ];
  it.each(wrong)('%s, well signed, is INVALID_REQUEST', (_, fields, top) => {
    const raw = event('payment_intent.succeeded', fields, top);
    expect(codeOf(() => read(raw))).toBe('INVALID_REQUEST');
  });

  it('a charge of the wrong form, and a body that is no JSON or that Postgres can not hold, is INVALID_REQUEST', () => {
    const charges = [
      ...[{ refunded: 'true' }, { amount_refunded: null }, { payment_intent: 7 }],
      ...[{ payment_intent: 'ch_1' }, { payment_intent: {} }, { payment_intent: undefined }],
    ];
    const bodies = [
      ...charges.map((fields) => event('charge.refunded', fields)),
      ...['7', 'null', '[]', '{', '"event"'].map((text) => Buffer.from(text)),
      event('payment_intent.succeeded', { metadata: { order_number: 'a\0b' } }),
    ];
    for (const raw of bodies)
      expect(
        codeOf(() => read(raw)),
        raw.toString(),
      ).toBe('INVALID_REQUEST');
  });
});

describe('S1-S4: the signature of a delivery', () => {
  const raw = event('payment_intent.succeeded');

  it('S2: is of the raw bytes: white space, umlauts and escapes verify, and the same event in other bytes does not', () => {
    const text = JSON.stringify(recorded('payment_intent.succeeded'));
    const bodies = [text, ` ${text}\r\n`, text.replace('ü', '\\u00fc')].map((one) =>
      Buffer.from(one),
    );
    for (const body of bodies) {
      expect(read(body)).toMatchObject({ outcome: 'PAYMENT' });
      for (const other of bodies.filter((one) => one !== body)) {
        expect(codeOf(() => read(other, header(body)))).toBe('SIGNATURE_INVALID');
      }
    }
  });

  it('S1: 600 bodies and headers with one bit turned are all refused', () => {
    const roll = dice(1);
    const head = Buffer.from(header(raw));
    const accepted: string[] = [];
    for (let each = 0; each < 600; each += 1) {
      const inHead = roll.pick([true, false]);
      const turned = Buffer.from(inHead ? head : raw);
      const at = roll.between(0, turned.length - 1);
      turned[at] = turned[at]! ^ (1 << roll.between(0, 7));
      const code = codeOf(() =>
        inHead ? read(raw, turned.toString('latin1')) : read(turned, head.toString()),
      );
      if (code !== 'SIGNATURE_INVALID') accepted.push(`${inHead ? 'header' : 'body'} ${at}`);
    }
    expect(accepted).toEqual([]);
    expect(read(raw, head.toString())).toMatchObject({ outcome: 'PAYMENT' });
  });

  it('S1: a byte order mark, or bytes that are no UTF-8, do not pass as what was signed', () => {
    const marked = Buffer.concat([Buffer.from('\ufeff'), raw]);
    expect(codeOf(() => read(marked, header(raw)))).toBe('SIGNATURE_INVALID');
    const replaced = event('payment_intent.succeeded', { description: '\ufffd' });
    const at = replaced.indexOf('\ufffd');
    const broken = Buffer.concat([
      replaced.subarray(0, at),
      Buffer.of(0xff),
      replaced.subarray(at + 3),
    ]);
    expect(new TextDecoder().decode(broken)).toBe(replaced.toString());
    expect(read(replaced)).toMatchObject({ outcome: 'PAYMENT' });
    expect(codeOf(() => read(broken, header(replaced)))).toBe('SIGNATURE_INVALID');
  });

  it.each([0, 299, 300, -299, -300])('S3: signed %i s ago is accepted', (ago) => {
    expect(read(raw, header(raw, { at: now - ago }))).toMatchObject({ outcome: 'PAYMENT' });
  });

  it.each([301, -301, 86_400, -86_400])('S3: signed %i s ago is refused', (ago) => {
    expect(codeOf(() => read(raw, header(raw, { at: now - ago })))).toBe('SIGNATURE_INVALID');
  });

  it('S3: a tolerance of 0 means this second, not any', () => {
    const old = header(raw, { at: now - 1 });
    expect(codeOf(() => stripeEvent(raw, old, [secret], 0))).toBe('SIGNATURE_INVALID');
    expect(stripeEvent(raw, header(raw), [secret], 0)).toMatchObject({ outcome: 'PAYMENT' });
  });

  it('the same delivery again is read again alike: its event id is what repeats are known by', () => {
    vi.setSystemTime((now + 60) * 1000);
    expect(read(raw, header(raw))).toEqual(read(raw, header(raw, { at: now + 60 })));
  });

  it('while secrets are rotated, one good signature of several, and any of the secrets, is enough', () => {
    const [good, old] = [signature(raw), signature(raw, older)];
    for (const parts of [`v1=${good},v1=${old}`, `v1=${old},v1=${good}`, `v0=${old},v1=${good}`]) {
      expect(read(raw, `t=${now},${parts}`)).toMatchObject({ outcome: 'PAYMENT' });
    }
    expect(read(raw, header(raw, { by: older }), [secret, older])).toMatchObject({});
    expect(codeOf(() => read(raw, header(raw, { by: older })))).toBe('SIGNATURE_INVALID');
  });

  const good = signature(raw);
  it.each([
    ['no header', undefined],
    ['an empty header', ''],
    ['no signature', `t=${now}`],
    ['an empty signature', `t=${now},v1=`],
    ['a signature without a sign of equality', `t=${now},v1`],
    ['only another scheme', `t=${now},v0=${good}`],
    ['the scheme in upper case', `t=${now},V1=${good}`],
    ['the signature in upper case', `t=${now},v1=${good.toUpperCase()}`],
    ['a signature that is cut', `t=${now},v1=${good.slice(0, -1)}`],
    ['64 letters that are 128 bytes', `t=${now},v1=${'é'.repeat(64)}`],
    ['no time', `v1=${good}`],
    ['an empty time', `t=,v1=${good}`],
    ['a time with a tail', `t=${now}x,v1=${good}`],
    ['a time with a fraction', `t=${now}.0,v1=${good}`],
    ['a time with a zero before', `t=0${now},v1=${good}`],
    ['two times', `t=${now},t=${now},v1=${good}`],
    ['two headers joined', `t=${now},v1=${good}, t=${now},v1=${good}`],
    ['5,000 signatures', `t=${now},${`v1=${good},`.repeat(5000)}`],
  ])('%s is SIGNATURE_INVALID', (_, head) => {
    expect(codeOf(() => stripeEvent(raw, head, [secret], 300))).toBe('SIGNATURE_INVALID');
  });

  it('no body, no secret and an empty secret are SIGNATURE_INVALID', () => {
    expect(codeOf(() => read(Buffer.of(), header(Buffer.of())))).toBe('SIGNATURE_INVALID');
    expect(codeOf(() => read(raw, header(raw), []))).toBe('SIGNATURE_INVALID');
    expect(codeOf(() => read(raw, header(raw), ['']))).toBe('SIGNATURE_INVALID');
  });

  it('a header that was sent twice is refused, also when both are good', () => {
    const rawHeaders = ['Stripe-Signature', header(raw), 'stripe-signature', header(raw)];
    const ask = () => theOne({ rawHeaders }, 'stripe-signature', 'SIGNATURE_INVALID');
    expect(codeOf(ask)).toBe('SIGNATURE_INVALID');
  });
});
