import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import type { ClaimRequest } from '../../db/claim.js';
import { putProduct } from '../../db/product.js';
import { readHold } from '../../db/readHold.js';
import { restock } from '../../db/restock.js';
import { describeEachPostgres } from '../setup/database.js';
import { bins, counts, everything, ledger, statusOf } from './books.js';
import { sharedShop } from './shop.js';

describeEachPostgres('a claim that is refused', (version) => {
  const shop = sharedShop(version);
  const operator = { actor: 'operator', reason: 'test' };

  async function moreOf(sku: string, quantity: number): Promise<void> {
    const change = { sku, bin: 'b1', reason: 'delivery', actor: 'operator', reference: null };
    await restock(shop.db, { ...change, quantity, requestId: 'more' });
  }

  it('R24: a refusal changes no stock and no ledger, is kept with its shortfalls, answers the same after a restock, and a fresh key then works', async () => {
    const [a, b] = [await shop.product([5]), await shop.product([1, 1])];
    const before = await everything(shop);
    const request = await shop.request({ [a]: 1, [b]: 3 });
    const refusal = {
      outcome: 'INSUFFICIENT_STOCK',
      shortfalls: [{ sku: b, requested: 3, available: 2 }],
    };
    expect(await claim(shop.db, request)).toEqual({ ...refusal, requestHash: 'hash' });
    expect(await everything(shop)).toEqual(before);
    expect(await readHold(shop.db, request.holdId)).toMatchObject({
      status: 'REJECTED',
      refusal,
      lines: [],
      expiresAt: null,
    });

    await moreOf(b, 10);
    expect(await claim(shop.db, request)).toEqual({ ...refusal, requestHash: 'hash' });
    expect(await statusOf(shop, request.holdId)).toBe('REJECTED');
    expect(await counts(shop, b)).toMatchObject({ available: 12, held: 0 });
    await shop.hold({ [a]: 1, [b]: 3 }, { buyerId: request.buyerId });
  });

  it('R38: sold out, not there, switched off, too long and too late are told apart, and only what was refused leaves a row', async () => {
    const sku = await shop.product([1], { maxHoldSeconds: 900 });
    const off = await shop.product([1], { active: false });
    const asked: [Record<string, number>, Partial<ClaimRequest>, object, string | undefined][] = [
      [{ [sku]: 2 }, {}, { outcome: 'INSUFFICIENT_STOCK' }, 'REJECTED'],
      [{ [off]: 1 }, {}, { outcome: 'PRODUCT_INACTIVE', sku: off }, 'REJECTED'],
      [{ [sku]: 1, nothing: 1 }, {}, { outcome: 'NOT_FOUND', sku: 'nothing' }, undefined],
      [
        { [sku]: 1 },
        { holdSeconds: 901 },
        { outcome: 'HOLD_TOO_LONG', maxHoldSeconds: 900 },
        undefined,
      ],
      [{ [sku]: 1 }, { holdSeconds: 0 }, { outcome: 'HOLD_TOO_LONG' }, undefined],
      [{ [sku]: 1 }, { claimDeadline: await shop.now() }, { outcome: 'CLAIM_TOO_LATE' }, undefined],
      // Too late is no refusal, whatever else would be wrong with it.
      [{ [off]: 1 }, { claimDeadline: await shop.now() }, { outcome: 'CLAIM_TOO_LATE' }, undefined],
    ];
    const before = await everything(shop);
    for (const [lines, rest, answer, status] of asked) {
      const request = await shop.request(lines, rest);
      expect(await claim(shop.db, request)).toMatchObject(answer);
      expect(await statusOf(shop, request.holdId)).toBe(status);
    }
    expect(await everything(shop)).toEqual(before);
  });

  it('R38: a claim that left no row may run again: the same key works when the product is there, or with a new deadline', async () => {
    const request = await shop.request({ 'comes-later': 1 });
    expect((await claim(shop.db, request)).outcome).toBe('NOT_FOUND');
    await putProduct(shop.db, 'comes-later', {}, operator);
    const late = { ...request, claimDeadline: await shop.now() };
    expect((await claim(shop.db, late)).outcome).toBe('CLAIM_TOO_LATE');
    expect(await claim(shop.db, request)).toMatchObject({ shortfalls: [{ available: 0 }] });
  });

  it('B04: the same product on several lines counts as their sum: 1 and 2 of 2 are refused, 10 and 5 of 30 hold 15, 1 and 2 pass no limit of 2', async () => {
    const twice = (sku: string, first: number, second: number) =>
      shop.claim(
        {},
        {
          lines: [
            { sku, quantity: first },
            { sku, quantity: second },
          ],
        },
      );
    const two = await shop.product([2]);
    expect(await twice(two, 1, 2)).toMatchObject({ shortfalls: [{ requested: 3, available: 2 }] });
    expect(await counts(shop, two)).toMatchObject({ available: 2, held: 0 });
    const fifty = await shop.product([50]);
    await shop.hold({ [fifty]: 20 });
    expect((await twice(fifty, 10, 5)).outcome).toBe('HELD');
    expect(await counts(shop, fifty)).toMatchObject({ available: 15, held: 35 });
    const limited = await shop.product([50], { perBuyerLimit: 2 });
    expect(await twice(limited, 1, 2)).toMatchObject({ outcome: 'BUYER_LIMIT', limit: 2 });
  });

  it('B11a, B11b: when one product of an order is sold out or unknown, nothing of the others is taken', async () => {
    const [a, b] = [await shop.product([1]), await shop.product([0])];
    expect((await shop.claim({ [a]: 1, [b]: 1 }, { order: true })).outcome).toBe(
      'INSUFFICIENT_STOCK',
    );
    expect((await shop.claim({ [a]: 1, unheard: 1 }, { order: true })).outcome).toBe('NOT_FOUND');
    expect(await bins(shop, a)).toEqual([[1, 0, 0]]);
    expect(await ledger(shop, { sku: a })).toEqual([]);
  });

  it('B18, F11: no odd quantity ever gets past the function: 0, negative, broken, null, missing and too many change nothing', async () => {
    const sku = await shop.product([100]);
    const before = await everything(shop);
    const odd: unknown[] = [
      -5,
      0,
      1.5,
      '1e2',
      true,
      null,
      10_001,
      2 ** 31 - 1,
      2 ** 31,
      2 ** 53,
      'NaN',
      [],
    ];
    const lines: unknown[][] = [
      ...odd.map((quantity) => [{ sku, quantity }]),
      [{ sku }],
      [],
      [{ quantity: 1 }],
      [
        { sku, quantity: 2 ** 31 - 1 },
        { sku, quantity: 1 },
      ],
      [
        { sku, quantity: -5 },
        { sku, quantity: 6 },
      ],
    ];
    for (const broken of lines) {
      const request = await shop.request({}, { lines: broken as ClaimRequest['lines'] });
      const outcome = await claim(shop.db, request).then(
        (answer) => answer.outcome,
        () => 'refused',
      );
      expect(outcome, JSON.stringify(broken)).not.toBe('HELD');
    }
    expect(await everything(shop)).toEqual(before);
  });

  it('B19: a key with another body, or an id of another buyer or key, is KEY_REUSED and shows nothing; another buyer may use the same key', async () => {
    const sku = await shop.product([9]);
    const request = await shop.request({ [sku]: 1 });
    await claim(shop.db, request);
    const reused: Partial<ClaimRequest>[] = [
      { requestHash: 'another body' },
      { buyerId: 'somebody else' },
      { idempotencyKey: 'another key' },
      { holdId: (await shop.request({})).holdId },
    ];
    for (const difference of reused) {
      expect(await claim(shop.db, { ...request, ...difference })).toEqual({
        outcome: 'KEY_REUSED',
      });
    }
    expect(await counts(shop, sku)).toMatchObject({ held: 1 });
    const { idempotencyKey } = request;
    await shop.hold({ [sku]: 1 }, { buyerId: 'somebody else', idempotencyKey });
  });
});
