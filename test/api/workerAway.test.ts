import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { length } from '../setup/length.js';
import { endOf, handleOf, until } from '../workflows/engine.js';
import { killProcess, startProcess } from '../workflows/process.js';
import type { OwnProcess } from '../workflows/process.js';
import { atOnce, sharedService } from './service.js';
import type { Hold } from './service.js';

/** How the money of a hold comes while the worker is away. */
const groups = {
  'in time, told before the timer': 'CONFIRMED true APPLIED',
  'in time, told after the timer': 'CONFIRMED true APPLIED',
  'late, told before the timer': 'EXPIRED false REFUND_DUE',
  'late, told after the timer': 'EXPIRED false REFUND_DUE',
};
type Group = keyof typeof groups;
const each = length(5, 20);

describe(`the worker is away over the end of ${4 * each} holds`, { timeout: 240_000 }, () => {
  const service = sharedService({ workers: false });
  let worker: OwnProcess;

  const startWorker = () =>
    startProcess('worker', {
      DATABASE_URL: service.shop.url,
      TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
    });
  beforeAll(async () => {
    worker = await startWorker();
    const { id } = await service.hold({ [await service.product([1])]: 1 });
    await service.post(`/v1/holds/${id}/cancel`, { reason: 'warm now' });
  });
  afterAll(() => killProcess(worker));

  async function away(how: 'SIGSTOP' | 'SIGKILL'): Promise<void> {
    worker.child.kill(how);
    if (how === 'SIGKILL') await worker.exit;
  }
  async function back(how: 'SIGSTOP' | 'SIGKILL'): Promise<void> {
    if (how === 'SIGSTOP') worker.child.kill('SIGCONT');
    else worker = await startWorker();
  }

  interface Round {
    sku: string;
    holds: Record<Group, Hold[]>;
    payments: Map<string, string>;
  }

  const names = Object.keys(groups) as Group[];
  const tell = async (round: Round, hold: Hold) => {
    const data = { payment_id: round.payments.get(hold.id)! };
    const { status, text } = await service.paid(hold.id, data);
    expect(status, text).toBe(200);
  };

  /** Time for the claims and the early payments, by what 20 claims take just now. */
  async function enoughSeconds(): Promise<number> {
    const sku = await service.product([each]);
    const began = performance.now();
    await atOnce(each, () => service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } }));
    return Math.max(3, Math.ceil(((performance.now() - began) * 9) / 1000));
  }

  /**
   * Claims all, sends the worker away and pays what is to be paid before the timers. A machine that
   * is too slow for that begins again with twice the time.
   */
  async function begin(how: 'SIGSTOP' | 'SIGKILL', holdSeconds: number): Promise<Round> {
    const sku = await service.product([each * names.length]);
    const payments = new Map<string, string>();
    const holds = {} as Round['holds'];
    for (const name of names)
      holds[name] = await atOnce(each, () =>
        service.hold({ [sku]: 1 }, { fields: { hold_seconds: holdSeconds } }),
      );
    const all = names.flatMap((name) => holds[name]);
    for (const { id } of all) payments.set(id, randomUUID());
    const round = { sku, holds, payments };
    await away(how);
    const firstEnd = Math.min(...all.map((hold) => Date.parse(hold.expires_at!)));
    // Recorded, and the signal is delayed: the webhook is repeated after the timer.
    const record = ({ id }: Hold) =>
      service.shop.pay(id, { provider: 'default', paymentId: payments.get(id)! });
    await Promise.all([
      ...holds['in time, told before the timer'].map((hold) => tell(round, hold)),
      ...holds['in time, told after the timer'].map(record),
    ]);
    const lastEnd = Math.max(...all.map((hold) => Date.parse(hold.expires_at!)));
    // By the clock of Postgres it is late although no timer has fired.
    await service.shop.shiftClock(lastEnd + 1000 - Date.now());
    const early = holds['late, told before the timer'].map((hold) => tell(round, hold));
    await Promise.all(early);
    await service.shop.shiftClock(0);
    if (Date.now() < firstEnd) return round;
    await back(how);
    return begin(how, 2 * holdSeconds);
  }

  const rowsOf = ({ sku }: Round) =>
    service.shop.query<{ id: string; status: string; is: string; open: boolean }>(
      `select h.id, h.status, concat_ws(' ', h.status, p.in_time::text, p.settlement) as is,
         h.status = 'HELD' or p.settlement is null as open
       from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
       left join tahan.payments p on p.hold_id = h.id where l.sku = $1`,
      [sku],
    );

  it.each(['SIGSTOP', 'SIGKILL'] as const)(
    'F14, F15, F13: %s; whatever came first, timer or payment: paid in time is CONFIRMED when it is back, paid late is EXPIRED and REFUND_DUE',
    async (how) => {
      const round = await begin(how, await enoughSeconds());
      const fired = async ({ id }: Hold) => {
        const { events } = await handleOf(service.engine, id).fetchHistory();
        return events!.some((event) => event.timerFiredEventAttributes);
      };
      for (const name of names.filter((one) => one.endsWith('told after the timer')))
        for (const hold of round.holds[name]) {
          await until('the timer has fired', () => fired(hold), 60_000);
          await tell(round, hold);
        }
      // Nobody has decided anything meanwhile.
      const before = await rowsOf(round);
      expect(new Set(before.map(({ status }) => status))).toEqual(new Set(['HELD']));
      await back(how);
      const decided = async () => !(await rowsOf(round)).some(({ open }) => open);
      await until('all is decided', decided, 60_000);
      const rows = new Map((await rowsOf(round)).map((row) => [row.id, row]));
      expect(rows.size).toBe(each * names.length);
      for (const name of names) {
        const seen = round.holds[name].map(({ id }) => rows.get(id)!.is);
        expect(seen, name).toEqual(Array(each).fill(groups[name]));
        for (const { id } of round.holds[name])
          expect(await endOf(service.engine, id)).toMatchObject({ outcome: rows.get(id)!.status });
      }
      const half = (each * names.length) / 2;
      expect(await service.counts(round.sku)).toEqual({ available: half, held: 0, sold: half });
    },
  );
});
