import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { length } from '../setup/length.js';
import { endOf, until } from '../workflows/engine.js';
import { atOnce, sharedService } from './service.js';
import type { Hold } from './service.js';

/** One hold and its one payment, as Postgres has them afterwards. */
interface Row {
  id: string;
  status: string;
  in_time: boolean;
  settlement: string;
  reason: string | null;
  /** When the payment reached Postgres, in ms after the hold's end. */
  after: number;
  /** Whether its units were ever given back. */
  given_back: boolean;
}

const count = length(40, 200);

describe('paid at the end, to the millisecond', () => {
  const service = sharedService({
    parts: ({ send }) => ({
      // A recorded payment is on its way to the workflow for up to 0.5 s: the timer may be first.
      async send(holds, request, message, limits) {
        if (message.kind === 'payment') await sleep(Math.random() * 500);
        return send(holds, request, message, limits);
      },
    }),
  });
  /** From the planned sending of a payment to its arrival in Postgres, as it was lately. */
  let lagMs = 20;

  /**
   * Claims one unit each, so many ms apart where the machine is as fast as that, and so the ends
   * are; each is paid so that the payment reaches Postgres from 50 ms before its end to 50 ms after.
   */
  async function run(
    sku: string,
    count: number,
    apartMs: number,
    { seconds = 4, atEnd }: { seconds?: number; atEnd?: (hold: Hold) => unknown } = {},
  ) {
    const rest: unknown[] = [];
    let left = count;
    let next = performance.now();
    await atOnce(8, async () => {
      while ((left -= 1) >= 0) {
        next = Math.max(next + apartMs, performance.now());
        await sleep(next - performance.now());
        const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: seconds } });
        rest.push(atEnd?.(hold));
        rest.push(payAt(hold, Date.parse(hold.expires_at!) + Math.random() * 100 - 50));
      }
    });
    await Promise.all(rest);
    return outcomes(sku, count);
  }

  async function payAt(hold: Hold, aim: number): Promise<void> {
    await sleep(Math.max(0, aim - lagMs - Date.now() - 100));
    // The lag as it is now, and not as it was when the hold was claimed.
    const planned = aim - lagMs;
    await sleep(Math.max(0, planned - Date.now()));
    const [payment, event] = [randomUUID(), randomUUID()];
    await until(
      'the payment is taken',
      async () => {
        const { status, text } = await service.paid(hold.id, { payment_id: payment }, event);
        expect([200, 503], text).toContain(status);
        return status === 200;
      },
      30_000,
    );
    const [row] = await service.shop.query<{ ms: number }>(
      `select (extract(epoch from received_at) * 1000)::float8 as ms from tahan.payments where payment_id = $1`,
      [payment],
    );
    lagMs = 0.8 * lagMs + 0.2 * Math.min(1000, Math.max(0, row!.ms - planned));
  }

  async function outcomes(sku: string, count: number): Promise<Row[]> {
    const rows = () =>
      service.shop.query<Row>(
        `select h.id, h.status, p.in_time, p.settlement, p.settlement_reason as reason,
           (extract(epoch from p.received_at - h.expires_at) * 1000)::float8 as after,
           exists (select from tahan.movements m
             where m.hold_id = h.id and m.type = 'release_reservation') as given_back
         from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
         join tahan.payments p on p.hold_id = h.id where l.sku = $1`,
        [sku],
      );
    const open = ({ status, settlement }: Row) => status === 'HELD' || settlement === null;
    await until('all is decided', async () => !(await rows()).some(open), 60_000);
    const all = await rows();
    expect(new Set(all.map(({ id }) => id)).size).toBe(count);
    expect(all).toHaveLength(count);
    expect(all.filter((row) => row.in_time && row.given_back)).toEqual([]);
    // Whoever asks the workflow hears the same.
    const results = await Promise.all(all.map(({ id }) => endOf(service.engine, id)));
    const inTime = all.map((row) => (row.in_time ? 'CONFIRMED' : row.status));
    expect(all.map(({ status }) => status)).toEqual(inTime);
    expect(
      results.filter(
        ({ outcome }, i) => outcome !== all[i]!.status && all[i]!.settlement !== 'ACCEPTED_LATE',
      ),
    ).toEqual([]);
    return all;
  }

  const told = (what: string, rows: Row[]) => {
    const late = rows.filter(({ in_time }) => !in_time);
    const near = rows.filter(({ after }) => Math.abs(after) <= 50).length;
    const overtaken = late.filter(({ after }) => after < 0).length;
    process.stderr.write(
      `${what}: ${rows.length} holds, ${rows.length - late.length} paid in time, ${near} within 50 ms, ` +
        `${overtaken} begun before the end and overtaken\n`,
    );
    return [rows.length - late.length, late.length];
  };

  it(
    `B22a, F14: ${count} holds with ends 25 ms apart, each paid at its end +-50 ms: CONFIRMED if in time, else EXPIRED with one REFUND_DUE`,
    { timeout: 180_000 },
    async () => {
      const sku = await service.product([count]);
      const rows = await run(sku, count, 25);
      const [confirmed, expired] = told('B22a', rows);
      expect(
        rows.filter(({ status, in_time: inTime, settlement, reason, after }) =>
          inTime
            ? status !== 'CONFIRMED' || settlement !== 'APPLIED' || after >= 0
            : status !== 'EXPIRED' || settlement !== 'REFUND_DUE' || reason !== 'LATE',
        ),
      ).toEqual([]);
      // With fewer of one kind the ends were missed, and nothing is proved.
      expect(Math.min(confirmed!, expired!)).toBeGreaterThan(0);
      expect(await service.counts(sku)).toEqual({ available: expired, held: 0, sold: confirmed });
    },
  );

  it(
    'B22a, R11: the same where late payments are accepted, while others claim the units: each is CONFIRMED, or EXPIRED with one REFUND_DUE',
    { timeout: 180_000 },
    async () => {
      const sku = await service.product([40], { late_payment: 'accept_if_available' });
      let taken = 0;
      let number = 0;
      const atEnd = async (hold: Hold) => {
        if ((number += 1) % 4 > 0) return;
        await sleep(Math.max(0, Date.parse(hold.expires_at!) - Date.now()));
        const { status } = await service.checkout({ [sku]: 1 });
        expect([201, 200, 409]).toContain(status);
        if (status !== 409) taken += 1;
      };
      // All of them must be held before the first of them ends, on a busy machine too.
      const rows = await run(sku, 40, 25, { seconds: 7, atEnd });
      const [inTime, late] = told('B22a, late payments accepted', rows);
      const sold = rows.filter(({ status }) => status === 'CONFIRMED').length;
      expect(
        rows.filter(({ status, in_time: punctual, settlement }) =>
          status === 'CONFIRMED'
            ? settlement !== (punctual ? 'APPLIED' : 'ACCEPTED_LATE')
            : punctual || status !== 'EXPIRED' || settlement !== 'REFUND_DUE',
        ),
      ).toEqual([]);
      expect(Math.min(inTime!, late!)).toBeGreaterThanOrEqual(4);
      expect(await service.counts(sku)).toEqual({
        available: 40 - sold - taken,
        held: taken,
        sold,
      });
    },
  );
});
