import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { listUnsettledPayments } from '../../db/openHolds.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import { describeEachPostgres } from '../setup/database.js';
import { counts, ledger, statusOf, tally } from './books.js';
import { atOnce } from './rivals.js';
import { sharedShop } from './shop.js';

describeEachPostgres('the events of a payment', (version) => {
  const shop = sharedShop(version, { connections: { changes: 8 } });
  const priced = { priceMinor: 1000, currency: 'EUR' };
  const order = { order: true };

  it('R34, B07, F27: the same event five times at once, and again later, sells once; a repeated confirmation answers ALREADY_CONFIRMED', async () => {
    const sku = await shop.product([5]);
    const hold = await shop.hold({ [sku]: 2 });
    const event = { paymentId: randomUUID(), eventId: randomUUID() };
    const recorded = await atOnce(5, () => shop.pay(hold, event));
    expect(tally(recorded)).toEqual({ RECORDED: 1, DUPLICATE: 4 });
    const confirmed = await atOnce(5, () => confirm(shop.db, hold, recorded[0]!));
    expect(tally(confirmed)).toEqual({ CONFIRMED: 1, ALREADY_CONFIRMED: 4 });
    await shop.shiftClock(3_600_000);
    expect(await shop.pay(hold, event)).toMatchObject({
      outcome: 'DUPLICATE',
      settlement: 'APPLIED',
    });
    expect(await confirm(shop.db, hold, recorded[0]!)).toEqual({ outcome: 'ALREADY_CONFIRMED' });
    expect(await ledger(shop, { sku })).toEqual(['reserve 2 b1', 'confirm_sold 2 b1']);
    expect(await counts(shop, sku)).toEqual({ available: 3, held: 0, sold: 2, total: 5 });
    const [kept] = await shop.query(
      'select deliveries from tahan.payment_events where event_id = $1',
      [event.eventId],
    );
    expect(kept).toEqual({ deliveries: 6 });
  });

  it('B09: an event that comes before its order is kept as unmatched and counts when it comes again; one for nothing stays unmatched', async () => {
    const sku = await shop.product([1], priced);
    const request = await shop.request({ [sku]: 1 }, order);
    const event = { paymentId: randomUUID(), eventId: randomUUID() };
    expect((await shop.pay(request.holdId, event)).outcome).toBe('UNMATCHED');
    await claim(shop.db, request);
    expect(await shop.pay(request.holdId, event)).toMatchObject({
      outcome: 'RECORDED',
      inTime: true,
    });
    expect(await confirm(shop.db, request.holdId, { provider: 'test', ...event })).toMatchObject({
      outcome: 'CONFIRMED',
    });
    const lost = { eventId: 'lost', orderNumber: 'AAAA-AAAA-AAAA', holdId: null };
    for (let i = 0; i < 2; i += 1) {
      expect((await shop.pay('', lost)).outcome).toBe('UNMATCHED');
    }
    expect(
      await shop.query(
        `select hold_id, deliveries from tahan.payment_events where event_id = any ($1) order by deliveries, hold_id nulls last`,
        [['lost', event.eventId]],
      ),
    ).toEqual([
      { hold_id: request.holdId, deliveries: 2 },
      { hold_id: null, deliveries: 2 },
    ]);
  });

  it('F22: in all 39 orders of up to three events, a failure changes nothing after a success, and a refund is final', async () => {
    const sku = await shop.product([39]);
    const statuses = ['failed', 'succeeded', 'refunded'] as const;
    const ends = {
      failed: {
        shown: { inTime: null, settlement: null },
        answer: { outcome: 'MISSING' },
        hold: 'HELD',
      },
      succeeded: { shown: { inTime: true }, answer: { outcome: 'CONFIRMED' }, hold: 'CONFIRMED' },
      refunded: {
        shown: { settlement: 'REFUNDED' },
        answer: { outcome: 'TOO_LATE' },
        hold: 'HELD',
      },
    };
    const longer = (orders: PaymentEvent['status'][][]) =>
      orders.flatMap((events) => statuses.map((status) => [...events, status]));
    const [one, two] = [longer([[]]), longer(longer([[]]))];
    for (const events of [...one, ...two, ...longer(two)]) {
      const hold = await shop.hold({ [sku]: 1 });
      const payment = { provider: 'test', paymentId: randomUUID() };
      let last: unknown;
      for (const status of events) last = await shop.pay(hold, { ...payment, status });
      const final = statuses.findLast((status) => events.includes(status))!;
      expect({ events, last }).toMatchObject({
        events,
        last: { status: final, ...ends[final].shown },
      });
      expect(await confirm(shop.db, hold, payment)).toMatchObject(ends[final].answer);
      expect(await statusOf(shop, hold)).toBe(ends[final].hold);
    }
  });

  it('A14: a late payment whose workflow never came is listed for the next start, until it is settled', async () => {
    const sku = await shop.product([1], { latePayment: 'accept_if_available' });
    const hold = await shop.hold({ [sku]: 1 });
    await shop.shiftClock(601_000);
    await expire(shop.db, hold);
    const { provider, paymentId } = await shop.pay(hold);
    const listed = async () =>
      (await listUnsettledPayments(shop.db)).filter((payment) => payment.holdId === hold);
    expect(await listed()).toEqual([{ provider, paymentId, holdId: hold }]);
    await confirm(shop.db, hold, { provider, paymentId });
    expect(await listed()).toEqual([]);
  });
});
