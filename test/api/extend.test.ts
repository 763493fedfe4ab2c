import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sharedService } from './service.js';
import type { Answer, Hold } from './service.js';

const service = sharedService();

const extend = (id: string, seconds: number, of: { key?: string; buyer?: string } = {}) =>
  service.post(
    `/v1/holds/${id}/extend${of.buyer === undefined ? '' : `?buyer_id=${of.buyer}`}`,
    { seconds },
    { idempotencyKey: of.key ?? randomUUID() },
  );
const told = ({ status, body }: Answer<unknown>) => [status, body.code];
const shown = async (id: string) => (await service.get(`/v1/holds/${id}`)).body;
const end = async (id: string) => Date.parse((await shown(id)).expires_at!);

describe('B15: an expired hold is never renewed', () => {
  it('B15: A holds the unit at 0, B at 660 s; A extends at 670 s: 409, and stays expired; B pays at 680 s and is confirmed', async () => {
    const sku = await service.product([1]);
    const a = await service.hold({ [sku]: 1 }, { buyer: 'A' });
    await service.shop.shiftClock(660_000);
    const b = await service.hold({ [sku]: 1 }, { buyer: 'B' });
    await service.shop.shiftClock(670_000);
    const key = randomUUID();
    for (const of of [{ key }, { key }, {}])
      expect(told(await extend(a.id, 60, of))).toEqual([409, 'HOLD_EXPIRED']);
    expect(await shown(b.id)).toMatchObject({ status: 'HELD', expires_at: b.expires_at });
    await service.shop.shiftClock(680_000);
    expect((await service.paid(b.id)).status).toBe(200);
    await service.becomes(b.id, 'CONFIRMED');
    expect(await shown(a.id)).toMatchObject({ status: 'EXPIRED', expires_at: a.expires_at });
    expect(await service.ledger(sku)).toEqual([
      'reserve 1 b1',
      'release_reservation 1 b1',
      'reserve 1 b1',
      'confirm_sold 1 b1',
    ]);
  });

  it('B15: 1 s before the end it is 200, and 1 s after the end 409, with nobody else about', async () => {
    const sku = await service.product([2]);
    const [before, after] = [await service.hold({ [sku]: 1 }), await service.hold({ [sku]: 1 })];
    await service.shop.stopClock(before.id, -1000);
    const extended = await extend(before.id, 60);
    expect(extended.status, extended.text).toBe(200);
    expect(Date.parse(extended.body.expires_at!)).toBe(Date.parse(before.expires_at!) + 60_000);
    expect(extended.body.expires_in_seconds).toBe(61);
    await service.shop.stopClock(after.id, 1000);
    expect(told(await extend(after.id, 60))).toEqual([409, 'HOLD_EXPIRED']);
    expect(await end(after.id)).toBe(Date.parse(after.expires_at!));
  });

  it('B15: a product that was switched off meanwhile sells nothing new, and its open holds may be extended and paid', async () => {
    const sku = await service.product([2]);
    const hold = await service.hold({ [sku]: 1 });
    const off = await service.put(`/v1/products/${sku}`, { active: false, reason: 'recall' });
    expect(off.status).toBe(200);
    expect((await extend(hold.id, 60)).status).toBe(200);
    expect((await service.checkout({ [sku]: 1 })).body.code).toBe('PRODUCT_INACTIVE');
    await service.paid(hold.id);
    await service.becomes(hold.id, 'CONFIRMED');
  });
});

it('R10: nothing but an extension that is granted moves the end: no refused checkout, other buyer, failed payment, repeat, reused key, wrong body, or 429', async () => {
  await service.restartApi({ rates: { perKey: null, perBuyer: 5 } });
  const sku = await service.product([1], { max_hold_seconds: 900 });
  const buyer = randomUUID();
  const [checkout, key] = [{ buyer, key: randomUUID() }, randomUUID()];
  const hold: Hold = await service.hold({ [sku]: 1 }, checkout);
  expect((await extend(hold.id, 60, { key })).status).toBe(200);
  const granted = Date.parse(hold.expires_at!) + 60_000;
  expect(await end(hold.id)).toBe(granted);

  const codes = [
    await service.attempt({ [sku]: 1 }, { buyer }),
    await service.attempt({ [sku]: 1 }, checkout),
    await extend(hold.id, 60, { key, buyer }),
    await extend(hold.id, 61, { key }),
    await extend(hold.id, 60, { buyer: 'another' }),
    await extend(hold.id, 241),
    await extend(hold.id, 0),
    await service.deliver({
      type: 'payment.failed',
      timestamp: new Date().toISOString(),
      data: { payment_id: randomUUID(), hold_id: hold.id, amount_minor: 1, currency: 'EUR' },
    }),
    await service.attempt({ [sku]: 1 }, { buyer }),
    await service.attempt({ [sku]: 1 }, { buyer }),
    await service.attempt({ [sku]: 1 }, { buyer }),
  ].map(told);
  expect(codes).toEqual([
    [409, 'INSUFFICIENT_STOCK'],
    [200, undefined],
    [200, undefined],
    [422, 'IDEMPOTENCY_KEY_REUSED'],
    [404, 'HOLD_NOT_FOUND'],
    [409, 'EXTENSION_LIMIT_REACHED'],
    [422, 'INVALID_HOLD_SECONDS'],
    [200, undefined],
    [409, 'INSUFFICIENT_STOCK'],
    [409, 'INSUFFICIENT_STOCK'],
    [429, 'RATE_LIMITED'],
  ]);
  expect(await end(hold.id)).toBe(granted);
  expect(await shown(hold.id)).toMatchObject({ status: 'HELD', extensions: 1 });
  // What was refused has used up neither of the two extensions.
  expect((await extend(hold.id, 240)).status).toBe(200);
  expect(await end(hold.id)).toBe(granted + 240_000);
});
