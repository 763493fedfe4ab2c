import type { QueryConfig } from 'pg';
import { expect, it } from 'vitest';
import { changeTogether } from '../../activities/changeTogether.js';
import { cancel } from '../../db/cancel.js';
import type { Confirmation } from '../../db/confirmBatch.js';
import { openDatabase } from '../../db/database.js';
import type { Database } from '../../db/database.js';
import { DatabaseFault } from '../../db/faults.js';
import { describeNewestPostgres } from '../setup/database.js';
import { atOnce, other, otherOnBins } from './rivals.js';
import { sharedShop } from './shop.js';

/** The statements that reach Postgres, in order, and a way to keep them or let them fail. */
function listening(
  db: Database,
  before: (name: string) => Promise<unknown> | undefined = () => undefined,
) {
  const asked: string[] = [];
  const changes = {
    lockBudgetMs: db.changes.lockBudgetMs,
    async answer(query: QueryConfig) {
      asked.push(query.name!);
      await before(query.name!);
      return db.changes.answer(query);
    },
  };
  return { asked, db: { ...db, changes } as unknown as Database };
}

describeNewestPostgres('changes of holds that meet in a worker', (version) => {
  const shop = sharedShop(version);
  const over = 11 * 60_000;
  const names = (answers: { outcome: string }[]) => answers.map(({ outcome }) => outcome);
  const hold = async (sku: string) => shop.hold({ [sku]: 1 });
  const pay = async (holdId: string): Promise<Confirmation> => {
    const { provider, paymentId } = await shop.pay(holdId);
    return { holdId, payment: { provider, paymentId } };
  };

  it('F13, R06: expiries that meet go together, two statements at once, and each hears its own answer', async () => {
    const sku = await shop.product([60, 60]);
    const holds = await atOnce(110, () => hold(sku));
    await cancel(shop.db, holds[70]!, 'changed my mind', 'buyer');
    await shop.shiftClock(over);
    const { asked, db } = listening(shop.db);
    const { expire } = changeTogether(db, 4);
    const answers = await Promise.all(holds.map((id) => expire(id)));
    expect(answers[70]).toEqual({ outcome: 'ALREADY', status: 'CANCELLED' });
    expect(names(answers).filter((name) => name === 'EXPIRED')).toHaveLength(109);
    // Two places were free for the first two; 108 waited, in two batches of 50 and one of 8.
    expect(asked).toEqual(Array.from({ length: 5 }, () => 'expire_batch'));
    // Nothing is kept of them: the next one finds a free place.
    expect(await expire(holds[0]!)).toEqual({ outcome: 'ALREADY', status: 'EXPIRED' });
  });

  it('F35: whatever a buyer asks for goes before the next expiries, and confirmations before them too', async () => {
    const sku = await shop.product([300]);
    const due = await atOnce(120, () => hold(sku));
    const paid = await Promise.all((await atOnce(60, () => hold(sku))).map(pay));
    const changing = await atOnce(5, () => hold(sku));
    await shop.shiftClock(over);
    let open!: () => void;
    const opened = new Promise<void>((resolve) => (open = resolve));
    const { asked, db } = listening(shop.db, () => opened);
    const { expire, confirm, change } = changeTogether(db, 2);
    const all = [
      ...due.map((id) => expire(id)),
      ...paid.map((one) => confirm(one)),
      ...changing.map((id) => change(() => cancel(db, id, 'changed my mind', 'buyer'))),
    ];
    // One in each place; who waits is served as the places become free.
    expect(asked).toEqual(['expire_batch', 'expire_batch']);
    open();
    expect(new Set(names(await Promise.all(all)))).toEqual(
      new Set(['EXPIRED', 'CONFIRMED', 'CANCELLED']),
    );
    const [last] = asked.slice(-1);
    expect(last).toBe('expire_batch');
    expect(asked.filter((name) => name === 'confirm_batch')).toHaveLength(2);
    expect(asked.lastIndexOf('confirm_batch')).toBeLessThan(asked.indexOf('expire_batch', 2));
    expect(asked.indexOf('cancel')).toBe(2);
  });

  it('R25, F35: while somebody keeps a bin, its holds hear STOCK_LOCK_TIMEOUT, and expiries, confirmations and cancels of others go on', async () => {
    const [kept, free] = [await shop.product([100]), await shop.product([200])];
    const stuck = await atOnce(12, () => hold(kept));
    const paidStuck = await Promise.all((await atOnce(3, () => hold(kept))).map(pay));
    const others = await atOnce(60, () => hold(free));
    const paid = await Promise.all((await atOnce(5, () => hold(free))).map(pay));
    await shop.shiftClock(over);
    const rival = await otherOnBins(shop, kept);
    const impatient = openDatabase({ url: shop.url, takeAppRole: true, stockLockTimeoutMs: 300 });
    const { expire, confirm, change } = changeTogether(impatient, 4);
    const codes = async (calls: Promise<{ outcome: string }>[]) =>
      (await Promise.allSettled(calls)).map((one) =>
        one.status === 'fulfilled' ? one.value.outcome : (one.reason as DatabaseFault).code,
      );
    // Those of the kept product at both ends and in between, in batches with the others.
    const mixed = [...stuck.slice(0, 4), ...others, ...stuck.slice(4)];
    const [ended, confirmed, cancelled] = await Promise.all([
      codes(mixed.map((id) => expire(id))),
      codes([...paidStuck, ...paid].map((one) => confirm(one))),
      codes(
        stuck.slice(0, 4).map((id) => change(() => cancel(impatient, id, 'changed my mind', 'x'))),
      ),
    ]);
    expect(ended.filter((code) => code === 'EXPIRED')).toHaveLength(60);
    // The first four are being cancelled too, and wait for the stock or for one another.
    expect(new Set(ended.slice(-8))).toEqual(new Set(['STOCK_LOCK_TIMEOUT']));
    const busy = ['STOCK_LOCK_TIMEOUT', 'STOCK_LEDGER_BUSY'];
    expect(ended.slice(0, 4).filter((code) => !busy.includes(code))).toEqual([]);
    expect(confirmed.slice(3)).toEqual(paid.map(() => 'CONFIRMED'));
    expect(new Set(confirmed.slice(0, 3))).toEqual(new Set(['STOCK_LOCK_TIMEOUT']));
    expect(new Set(cancelled)).not.toContain('CANCELLED');
    await rival.rollback();
    expect(new Set(await codes(paidStuck.map((one) => confirm(one))))).toEqual(
      new Set(['CONFIRMED']),
    );
    await impatient.close();
  });

  it('R05, F35: what a batch leaves, and a poisoned one, is asked alone; an outage is heard by all, and none was asked twice', async () => {
    const sku = await shop.product([100]);
    const paid = await Promise.all((await atOnce(6, () => hold(sku))).map(pay));
    const rival = await other(shop, 'select from tahan.holds where id = $1 for no key update', [
      paid[3]!.holdId,
    ]);
    const { asked, db } = listening(shop.db);
    const { confirm } = changeTogether(db, 4);
    const surplus = await pay(paid[4]!.holdId);
    const calls = [...paid, surplus, paid[5]!].map((one) => confirm(one));
    const poisoned = confirm({ ...paid[0]!, holdId: 'no uuid' }).catch(() => 'rejected');
    await Promise.all(calls.slice(0, 3));
    await rival.rollback();
    expect(names(await Promise.all(calls))).toEqual([
      ...['CONFIRMED', 'CONFIRMED', 'CONFIRMED', 'CONFIRMED', 'CONFIRMED', 'CONFIRMED'],
      ...['SURPLUS', 'ALREADY_CONFIRMED'],
    ]);
    expect(await poisoned).toBe('rejected');
    expect(asked.slice(0, 3)).toEqual(['confirm_batch', 'confirm_batch', 'confirm_batch']);

    const away = new DatabaseFault('DATABASE_UNAVAILABLE', 'away');
    const gone = listening(shop.db, () => Promise.reject(away));
    const { expire } = changeTogether(gone.db, 4);
    const settled = await Promise.allSettled(paid.map(({ holdId }) => expire(holdId)));
    expect(settled.filter(({ status }) => status === 'rejected')).toHaveLength(6);
    expect(gone.asked).toEqual(['expire_batch', 'expire_batch', 'expire_batch']);
  });
});
