import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { cancel } from '../../db/cancel.js';
import { confirm } from '../../db/confirm.js';
import { confirmBatch } from '../../db/confirmBatch.js';
import type { Confirmation } from '../../db/confirmBatch.js';
import { conflicts, openDatabase } from '../../db/database.js';
import { expire } from '../../db/expire.js';
import { expireBatch } from '../../db/expireBatch.js';
import { restock } from '../../db/restock.js';
import type { PaymentRef } from '../../db/values.js';

import { describeEachPostgres } from '../setup/database.js';
import { length } from '../setup/length.js';
import { counts, everything, statusOf } from './books.js';
import { atOnce, other, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';

const rounds = length(4, 40);
const over = 11 * 60_000;

describeEachPostgres('holds that end in one batch', (version) => {
  const shop = sharedShop(version, { connections: { claims: 8, changes: 12 } });
  const names = (answers: { outcome: string }[]) => answers.map(({ outcome }) => outcome);

  /** The same holds over the same products, twice: what a batch does to one, single calls do to the other. */
  async function twins() {
    const lots = [];
    for (const lot of ['first', 'second']) {
      const [a, b] = [
        await shop.product([3, 5, 9], { safetyStock: [1], priceMinor: 100, currency: 'EUR' }),
        await shop.product([20], { latePayment: 'accept_if_available' }),
      ];
      const holds = [];
      for (const lines of [{ [a]: 4 }, { [b]: 2 }, { [b]: 1, [a]: 3 }, { [a]: 2 }, { [b]: 10 }])
        holds.push(await shop.hold(lines, { order: !(b in lines) }));
      lots.push({ lot, skus: [a, b], holds });
    }
    return lots as [(typeof lots)[0], (typeof lots)[0]];
  }

  /** All that the end of these holds has written, without what must differ. */
  function written({ lot, skus, holds }: Awaited<ReturnType<typeof twins>>[0]) {
    return shop.query(
      `select array_position($2::uuid[], h.id) as i, h.status, h.reason, replace(h.payment_provider, $3, 'lot') as provider,
         h.payment_id, h.extensions, h.closed_at >= h.created_at as closed, h.closed_at >= h.expires_at as over,
         (select jsonb_agg(to_jsonb(l) - '{hold_id,sku}'::text[] order by array_position($1::text[], l.sku))
          from tahan.hold_lines l where l.hold_id = h.id) as lines,
         (select jsonb_agg(jsonb_build_array(array_position($1::text[], b.sku), b.code, a.quantity, a.returned) order by b.id)
          from tahan.allocations a join tahan.bins b on b.id = a.bin_id where a.hold_id = h.id) as units,
         (select jsonb_agg(to_jsonb(m) - '{id,bin_id,sku,hold_id,actor,created_at}'::text[] || jsonb_build_object(
            'bin', b.code, 'product', array_position($1::text[], b.sku), 'by', replace(m.actor, $3, 'lot'),
            'then', m.created_at = h.closed_at) order by b.id, m.bin_version)
          from tahan.movements m join tahan.bins b on b.id = m.bin_id where m.hold_id = h.id and m.type <> 'reserve') as ledger,
         (select jsonb_agg(to_jsonb(p) - '{hold_id,provider,created_at,received_at}'::text[]) from tahan.payments p
          where p.hold_id = h.id) as money,
         (select jsonb_agg(jsonb_build_array(b.code, b.available, b.held, b.sold, b.version) order by b.id)
          from tahan.bins b where b.sku = any ($1)) as bins
       from tahan.holds h where h.id = any ($2) order by 1`,
      [skus, holds, lot],
    );
  }

  it('R06, F13: expiries say and write together what they say and write one after the other', async () => {
    const [together, alone] = await twins();
    await shop.shiftClock(over);
    const single = [];
    for (const hold of alone.holds) single.push(await expire(shop.db, hold));
    expect(await expireBatch(shop.db, together.holds)).toEqual(single);
    expect(new Set(names(single))).toEqual(new Set(['EXPIRED']));
    const rows = await written(together);
    expect(rows).toHaveLength(5);
    expect(rows).toEqual(await written(alone));
    // Again, by one or the other: nothing changes any more.
    const already = { outcome: 'ALREADY', status: 'EXPIRED' };
    expect(await expireBatch(shop.db, together.holds)).toEqual(together.holds.map(() => already));
    expect(await expire(shop.db, together.holds[2]!)).toEqual(already);
    expect(await written(together)).toEqual(rows);
  });

  it('R05, R34: confirmations say and write together what they say and write one after the other', async () => {
    const [together, alone] = await twins();
    const paid = async ({ lot, holds }: typeof together) => {
      const all: Confirmation[] = [];
      for (const [index, holdId] of holds.entries()) {
        const payment = { provider: lot, paymentId: `pay-${index}` };
        const amountMinor = [400, 1, 1, 200, 1][index]!;
        await shop.pay(holdId, { ...payment, amountMinor });
        all.push({ holdId, payment });
      }
      return all;
    };
    const [asked, askedAlone] = [await paid(together), await paid(alone)];
    // In time is what was stored, however late it is by now.
    await shop.shiftClock(over);
    const single = [];
    for (const { holdId, payment } of askedAlone)
      single.push(await confirm(shop.db, holdId, payment));
    expect(await confirmBatch(shop.db, asked)).toEqual(single);
    expect(single).toEqual(single.map(() => ({ outcome: 'CONFIRMED', late: false })));
    const rows = await written(together);
    expect(rows).toHaveLength(5);
    expect(rows).toEqual(await written(alone));
    expect(names(await confirmBatch(shop.db, asked))).toEqual(asked.map(() => 'ALONE'));
    expect(await confirm(shop.db, asked[1]!.holdId, asked[1]!.payment)).toEqual({
      outcome: 'ALREADY_CONFIRMED',
    });
    expect(await written(together)).toEqual(rows);
  });

  it('R06, F12: what is not plain to expire is left alone and unchanged; what is not due, or has ended, hears it; the others expire', async () => {
    const sku = await shop.product([100]);
    const hold = (holdSeconds: number | null = null) => shop.hold({ [sku]: 1 }, { holdSeconds });
    const [due, last, locked, paid, cancelled, confirmed, longer] = [
      await hold(),
      await hold(),
      await hold(),
      await hold(),
      await hold(),
      await hold(),
      await hold(1800),
    ];
    await shop.pay(paid);
    await cancel(shop.db, cancelled, 'changed my mind', 'buyer');
    await confirm(shop.db, confirmed, await shop.pay(confirmed));
    const refused = await shop.request({ [sku]: 1000 });
    await shop.claim({ [sku]: 1000 }, refused);
    const rival = await other(shop, 'select from tahan.holds where id = $1 for no key update', [
      locked,
    ]);
    await shop.shiftClock(over);
    const answers = await expireBatch(shop.db, [
      ...[due, locked, due, randomUUID(), paid, longer, cancelled],
      ...[confirmed, refused.holdId, last],
    ]);
    expect(answers[5]).toMatchObject({ outcome: 'NOT_DUE' });
    const left = (answers[5] as { remainingMs: number }).remainingMs;
    expect(left).toBeGreaterThan(1_100_000);
    expect(left).toBeLessThanOrEqual(1_140_000);
    answers.splice(5, 1);
    expect(answers).toEqual([
      { outcome: 'EXPIRED' },
      { outcome: 'ALONE' },
      { outcome: 'ALONE' },
      { outcome: 'ALONE' },
      { outcome: 'ALONE' },
      { outcome: 'ALREADY', status: 'CANCELLED' },
      { outcome: 'ALREADY', status: 'CONFIRMED' },
      { outcome: 'ALREADY', status: 'REJECTED' },
      { outcome: 'EXPIRED' },
    ]);
    for (const held of [locked, paid, longer]) expect(await statusOf(shop, held)).toBe('HELD');
    await rival.rollback();
    // Alone, nothing of the batch stands in their way.
    expect(names([await expire(shop.db, locked), await expire(shop.db, paid)])).toEqual([
      'EXPIRED',
      'PAYMENT_PENDING',
    ]);
    await confirm(shop.db, paid, { provider: 'test', paymentId: await paymentOf(paid) });
  });

  async function paymentOf(hold: string): Promise<string> {
    const [row] = await shop.query<{ id: string }>(
      'select payment_id as id from tahan.payments where hold_id = $1',
      [hold],
    );
    return row!.id;
  }

  it('R05, R11, F23: what is not plain to confirm is left alone and unchanged, and confirm then settles it; the others are confirmed', async () => {
    const priced = await shop.product([100], { priceMinor: 700, currency: 'EUR' });
    const kind = await shop.product([100], { latePayment: 'accept_if_available' });
    const hold = (sku = priced, order = false) => shop.hold({ [sku]: 1 }, { order });
    const pay = async (holdId: string, rest = {}): Promise<Confirmation> => {
      const { provider, paymentId } = await shop.pay(holdId, rest);
      return { holdId, payment: { provider, paymentId } };
    };
    const [first, accepting, twice, locked, failed, settled, ended, back] = [
      await hold(),
      await hold(kind),
      await hold(),
      await hold(),
      await hold(),
      await hold(),
      await hold(),
      await hold(),
    ];
    const order = await hold(priced, true);
    const [late, lateAccepting] = [await hold(), await hold(kind)];
    const plain = [
      await pay(first, { amountMinor: 1 }),
      await pay(accepting),
      await pay(twice),
      await pay(order, { amountMinor: 700 }),
    ];
    await cancel(shop.db, ended, 'changed my mind', 'buyer');
    const wrong = await pay(order, { amountMinor: 1 });
    const alone: [Confirmation, string][] = [
      [await pay(locked), 'CONFIRMED'],
      [await pay(twice), 'SURPLUS'],
      [plain[0]!, 'ALREADY_CONFIRMED'],
      [await pay(failed, { status: 'failed' }), 'MISSING'],
      [wrong, 'MISMATCH'],
      [await pay(ended), 'TOO_LATE'],
      [{ holdId: settled, payment: plain[0]!.payment }, 'MISSING'],
      [{ ...plain[0]!, holdId: randomUUID() }, 'MISSING'],
      [{ ...plain[0]!, payment: { provider: 'test', paymentId: 'unknown' } }, 'MISSING'],
    ];
    const given = await pay(back);
    await shop.pay(back, { ...given.payment, status: 'refunded' });
    alone.push([given, 'TOO_LATE']);
    const rival = await other(shop, 'select from tahan.holds where id = $1 for no key update', [
      locked,
    ]);
    await shop.shiftClock(over);
    alone.push([await pay(late), 'TOO_LATE'], [await pay(lateAccepting), 'CONFIRMED']);

    const answers = await confirmBatch(shop.db, [...plain, ...alone.map(([asked]) => asked)]);
    expect(names(answers)).toEqual([...plain.map(() => 'CONFIRMED'), ...alone.map(() => 'ALONE')]);
    for (const held of [locked, failed, settled, back, late, lateAccepting])
      expect(await statusOf(shop, held)).toBe('HELD');
    await rival.rollback();
    const after = [];
    for (const [{ holdId, payment }] of alone) after.push(await confirm(shop.db, holdId, payment));
    expect(names(after)).toEqual(alone.map(([, outcome]) => outcome));
  });

  it('R05: money that does not fit, is settled, has failed or is of a closed hold never confirms in a batch, whoever wrote it so', async () => {
    const sku = await shop.product([9], { priceMinor: 700, currency: 'EUR' });
    const wrong = [
      { was: 'amount_minor = 700', becomes: 'amount_minor = 1' },
      {
        was: 'settlement = null, settlement_reason = null',
        becomes: `settlement = 'NEEDS_REVIEW', settlement_reason = 'LATE'`,
      },
      { was: `status = 'succeeded'`, becomes: `status = 'failed'` },
      // As late money of a closed hold never is.
      {
        was: `in_time = false, settlement = 'REFUND_DUE', settlement_reason = 'LATE'`,
        becomes: 'in_time = true, settlement = null, settlement_reason = null',
      },
    ];
    const holds = await atOnce(4, () => shop.hold({ [sku]: 1 }, { order: true }));
    await cancel(shop.db, holds[3]!, 'changed my mind', 'buyer');
    const asked: Confirmation[] = [];
    for (const [index, holdId] of holds.entries()) {
      const { provider, paymentId } = await shop.pay(holdId, { amountMinor: 700 });
      asked.push({ holdId, payment: { provider, paymentId } });
      const set = `update tahan.payments set ${wrong[index]!.becomes} where payment_id = $1`;
      await shop.query(set, [paymentId]);
    }
    expect(names(await confirmBatch(shop.db, asked))).toEqual(asked.map(() => 'ALONE'));
    for (const [index, { payment }] of asked.entries()) {
      const set = `update tahan.payments set ${wrong[index]!.was} where payment_id = $1`;
      await shop.query(set, [payment.paymentId]);
    }
    expect(names(await confirmBatch(shop.db, asked))).toEqual([
      ...['CONFIRMED', 'CONFIRMED', 'CONFIRMED', 'ALONE'],
    ]);
  });

  it('F47: a batch is refused where a statement would not see what was committed while it waited', async () => {
    const client = await shop.session();
    for (const call of [`expire_batch('{}')`, `confirm_batch('{}', '{}', '{}')`]) {
      await client.query('begin isolation level repeatable read');
      await expect(client.query(`select tahan.${call}`)).rejects.toMatchObject({ code: 'TH900' });
      await client.query('rollback');
    }
  });

  it('F15: a clock that steps back while a batch waits for a bin undoes nothing', async () => {
    const sku = await shop.product([2]);
    const holds = await atOnce(2, () => shop.hold({ [sku]: 1 }));
    await shop.shiftClock(over);
    const rival = await otherOnBins(shop, sku);
    const running = shop.query<{ answer: object }>('select tahan.expire_batch($1) as answer', [
      holds,
    ]);
    await whenWaiting(shop, 'tahan.expire_batch');
    await shop.shiftClock(0);
    await rival.rollback();
    // The audit of the shop knows when each of them closed.
    expect((await running)[0]!.answer).toEqual(holds.map(() => ({ outcome: 'EXPIRED' })));
  });

  it('F12: how long a hold is still to wait is counted after the wait of its neighbours', async () => {
    const [sku, free] = [await shop.product([2]), await shop.product([2])];
    const due = await shop.hold({ [sku]: 1 });
    const longer = await shop.hold({ [free]: 1 }, { holdSeconds: 700 });
    await shop.shiftClock(605_000);
    const rival = await otherOnBins(shop, sku);
    const running = shop.query<{ answer: { remainingMs: number }[] }>(
      'select tahan.expire_batch($1) as answer',
      [[longer, due]],
    );
    await whenWaiting(shop, 'tahan.expire_batch');
    await shop.shiftClock(650_000);
    await rival.rollback();
    const [{ answer }] = (await running) as [{ answer: { remainingMs: number }[] }];
    expect(answer[0]!.remainingMs).toBeLessThanOrEqual(50_000);
    expect(answer[1]).toEqual({ outcome: 'EXPIRED' });
  });

  it('R25, F35: a bin that somebody keeps is its own holds’ trouble: they hear BUSY and have not changed, the others end', async () => {
    const skus = await atOnce(4, () => shop.product([1, 5]));
    const [a, b, c, d] = skus.sort() as [string, string, string, string];
    const holds = [
      await shop.hold({ [b]: 2, [d]: 1 }),
      await shop.hold({ [a]: 2 }),
      await shop.hold({ [c]: 1 }),
      await shop.hold({ [d]: 2 }),
      await shop.hold({ [a]: 1, [c]: 3 }),
    ];
    const asked: Confirmation[] = [];
    for (const holdId of holds) {
      const { provider, paymentId } = await shop.pay(holdId);
      asked.push({ holdId, payment: { provider, paymentId } });
    }
    const rivals = [await otherOnBins(shop, b, 'b2'), await otherOnBins(shop, c, 'b2')];
    const impatient = openDatabase({ url: shop.url, takeAppRole: true, stockLockTimeoutMs: 150 });
    const began = performance.now();
    const confirmed = await confirmBatch(impatient, asked);
    expect(names(confirmed)).toEqual(['BUSY', 'CONFIRMED', 'CONFIRMED', 'CONFIRMED', 'BUSY']);
    // One budget for both bins; what is left of it is never nothing.
    expect(performance.now() - began).toBeLessThan(2_000);
    const before = await everything(shop);
    expect(names(await confirmBatch(impatient, [asked[0]!]))).toEqual(['BUSY']);
    expect(await everything(shop)).toEqual(before);
    for (const rival of rivals) await rival.rollback();
    const left = [asked[0]!, asked[4]!];
    expect(names(await confirmBatch(shop.db, left))).toEqual(['CONFIRMED', 'CONFIRMED']);

    const overdue = [await shop.hold({ [a]: 1 }), await shop.hold({ [d]: 1, [b]: 1 })];
    const kept = await otherOnBins(shop, b);
    await shop.shiftClock(over);
    expect(names(await expireBatch(impatient, overdue))).toEqual(['EXPIRED', 'BUSY']);
    await impatient.close();
    await kept.rollback();
    expect(names(await expireBatch(shop.db, overdue))).toEqual(['ALREADY', 'EXPIRED']);
  });

  it('R06, R23, B01: batches against batches, single calls, cancels and claims that take back, over crossed bins: each hold ends once, nothing deadlocks', async () => {
    const of = { holdSeconds: 1, latePayment: 'accept_if_available' } as const;
    const [a, b] = [await shop.product([20, 20], of), await shop.product([15, 15, 15], of)];
    const before = conflicts.repeated;
    const seen = new Set<string>();
    const sold: Record<string, number> = { [a]: 0, [b]: 0 };
    let clock = 0;
    const later = () => shop.shiftClock((clock += 100_000));
    for (let round = 1; round <= rounds; round += 1) {
      const lines = [{ [a]: 1 }, { [b]: 2, [a]: 1 }, { [b]: 1 }, { [a]: 2, [b]: 1 }];
      const holds = await atOnce(16, (i) => shop.hold(lines[i % 4]!, { holdSeconds: 60 }));
      const paid = new Map<string, PaymentRef>();
      for (const hold of holds.filter((_, i) => i % 3 === 0)) {
        const { provider, paymentId } = await shop.pay(hold);
        paid.set(hold, { provider, paymentId });
      }
      await later();
      const turned = [...holds].reverse();
      const money = [...paid].map(([holdId, payment]) => ({ holdId, payment }));
      const some = <T>(list: T[], from: number) => [...list.slice(from), ...list.slice(0, from)];
      const note = (kind: string) => (answers: { outcome: string } | { outcome: string }[]) => {
        for (const { outcome } of [answers].flat()) seen.add(`${kind} ${outcome}`);
      };
      await Promise.all([
        // First, or it finds every hold locked by the others.
        confirmBatch(shop.db, money).then(note('confirm_batch')),
        expireBatch(shop.db, holds).then(note('expire_batch')),
        expireBatch(shop.db, some(turned, 5)).then(note('expire_batch')),
        confirmBatch(shop.db, some(money, 3).reverse()).then(note('confirm_batch')),
        ...some(holds, 7).map((hold) => expire(shop.db, hold).then(note('expire'))),
        ...some(turned, 9).map((hold, i) =>
          i % 4 === 0 ? cancel(shop.db, hold, 'x', 'buyer').then(note('cancel')) : undefined,
        ),
        ...some(money, 2).map(({ holdId, payment }) =>
          confirm(shop.db, holdId, payment).then(note('confirm')),
        ),
        ...[{ [b]: 3, [a]: 2 }, { [a]: 30 }, { [b]: 30 }].map((wanted) =>
          shop.claim(wanted, { holdSeconds: 60 }).then(note('claim')),
        ),
      ]);
      for (const { holdId, payment } of money) await confirm(shop.db, holdId, payment);
      for (const hold of holds) await expire(shop.db, hold);
      for (const [index, hold] of holds.entries()) {
        const ends = index % 3 === 0 ? ['CONFIRMED'] : ['EXPIRED', 'CANCELLED'];
        expect(ends).toContain(await statusOf(shop, hold));
      }
      // The claims' own holds end, what was sold is put back on the shelf, and the next round begins.
      await later();
      const open = await shop.query<{ id: string }>(
        `select distinct hold_id as id from tahan.hold_lines where sku = any ($1) and open_until is not null`,
        [[a, b]],
      );
      const ids = open.map(({ id }) => id);
      expect(new Set(names(await expireBatch(shop.db, ids)))).toEqual(new Set(['EXPIRED']));
      for (const sku of [a, b]) {
        const before = sold[sku]!;
        sold[sku] = (await counts(shop, sku)).sold;
        const by = { reason: 'again', actor: 'op', requestId: randomUUID(), reference: null };
        await restock(shop.db, { sku, bin: 'b1', quantity: sold[sku] - before, ...by });
      }
    }
    for (const answer of ['expire_batch EXPIRED', 'claim HELD']) expect(seen).toContain(answer);
    // It got as far as the bins, whether or not it got them.
    expect([...seen].some((one) => /^confirm_batch (CONFIRMED|BUSY)$/.test(one))).toBe(true);
    expect(conflicts.repeated).toBe(before);
  });
});
