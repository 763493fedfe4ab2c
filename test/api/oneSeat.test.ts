import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { expire } from '../../db/expire.js';
import { moneyBook, settles } from './moneyBook.js';
import { sharedService } from './service.js';
import type { Hold } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });

/**
 * The worked example, on API, Temporal, worker and Postgres. Only the database's clock is shifted:
 * Temporal's timer of A, five real minutes, does not fire while it runs, so the expiry is withheld.
 */
describe('one seat, A holds it for 5 minutes', () => {
  it('R15: B is refused at 0:02 and gets the seat at 5:02 while the expiry of A has not run; A pays at 5:03 and is refused, and the money goes back once', async () => {
    const { seat, a } = await refusedAtTwoSeconds();
    await service.shop.shiftClock(302_000);
    expect((await service.get(`/v1/holds/${a.id}`)).body.status).toBe('HELD');
    const b = await service.hold({ [seat]: 1 }, { buyer: 'B' });
    await ownsItAlone(seat, a, b);
  });

  it('R15: the same with the expiry of A called by a second connection at the moment of the claim of B, 10 rounds', async () => {
    for (let round = 1; round <= 10; round += 1) {
      const { seat, a } = await refusedAtTwoSeconds();
      await service.shop.shiftClock(302_000);
      const [b, expiry] = await Promise.all([
        service.hold({ [seat]: 1 }, { buyer: 'B' }),
        expire(service.shop.db, a.id),
      ]);
      expect(['EXPIRED', 'ALREADY']).toContain(expiry.outcome);
      await ownsItAlone(seat, a, b);
      await service.shop.shiftClock(0);
    }
  });

  async function refusedAtTwoSeconds(): Promise<{ seat: string; a: Hold }> {
    const seat = await service.product([1], { hold_seconds: 300 });
    const a = await service.hold({ [seat]: 1 }, { buyer: 'A' });
    expect(a.expires_in_seconds).toBe(300);
    await service.shop.shiftClock(2_000);
    const refused = await service.checkout({ [seat]: 1 }, { buyer: 'B' });
    expect([refused.status, refused.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    expect(refused.body.shortfalls).toEqual([{ sku: seat, requested: 1, available: 0 }]);
    return { seat, a };
  }

  async function ownsItAlone(seat: string, a: Hold, b: Hold): Promise<void> {
    expect(b.status).toBe('HELD');
    await service.shop.shiftClock(303_000);
    const late = randomUUID();
    expect((await service.paid(a.id, { payment_id: late })).status).toBe(200);
    expect((await service.paid(b.id)).status).toBe(200);
    await service.becomes(b.id, 'CONFIRMED');
    const shown = await settles(service, late, 'REFUNDED');
    expect(shown).toMatchObject({ in_time: false, settlement_reason: 'LATE' });
    expect(shown.refunds).toMatchObject([{ state: 'EXECUTED', amount_minor: 1000, calls: 1 }]);
    expect((await service.get(`/v1/holds/${a.id}`)).body.status).toBe('EXPIRED');
    // It comes again after that, and nothing more goes back.
    await service.paid(a.id, { payment_id: late });
    expect(book.of(late)).toEqual([1000]);
    expect(book.sent.filter(({ holdId }) => holdId === b.id)).toEqual([]);
    expect(await service.counts(seat)).toEqual({ available: 0, held: 0, sold: 1 });
    // One owner at a time, in the order of the ledger.
    expect(await service.ledger(seat)).toEqual([
      'reserve 1 b1',
      'release_reservation 1 b1',
      'reserve 1 b1',
      'confirm_sold 1 b1',
    ]);
  }
});
