import { describe, expect, test } from 'vitest';
import { send } from '../../workflows/contract.js';
import { sharedCounter } from './counter.js';
import { handleOf, stateOf, until } from './engine.js';
import { points, standAt } from './points.js';
import type { Point } from './points.js';
import { cancel, claimAgain, extend, withinMs } from './talk.js';

/** Temporal's own cancel, at every point of a hold's life, on the real database. */
const counter = sharedCounter({ local: 20, changes: 20 });

/** How each ends: what was under way counts first, then the cancel. */
const ends: Record<Point, 'CANCELLED' | 'CONFIRMED' | 'EXPIRED'> = {
  'in the wait': 'CANCELLED',
  'claim before': 'CANCELLED',
  'claim after': 'CANCELLED',
  'recordPayment before': 'CONFIRMED',
  'recordPayment after': 'CONFIRMED',
  'confirm before': 'CONFIRMED',
  'confirm after': 'CONFIRMED',
  'expire before': 'EXPIRED',
  'expire after': 'EXPIRED',
  'cancel before': 'CANCELLED',
  'cancel after': 'CANCELLED',
  'extend before': 'CANCELLED',
  'extend after': 'CANCELLED',
};

describe("B24, F39, H11: Temporal's cancel, twice within 100 ms", () => {
  test('B24, F39: at each point, before and after the commit: the activity ends first, callers are answered, the run COMPLETES, the units move once', async () => {
    const sku = await counter.shop.product([points.length]);
    await Promise.all(
      points.map(async (point) => {
        const { request, gate, asked } = await standAt(counter, sku, point);
        const handle = handleOf(counter.temporal, request.holdId);
        await handle.cancel();
        await handle.cancel();
        // While the activity stands, nobody is answered, and nothing else is begun. A local one keeps
        // the workflow's task: what is asked meanwhile is not even seen before its end.
        const later = [cancel(counter.temporal, request), extend(counter.temporal, request, 5)];
        if (!/^(claim|expire) /.test(point) && gate) {
          const begun = counter.gates.calls.get(request.holdId)!.length;
          await until('all three wait', async () => (await waiting(request)) === 3, 20_000);
          expect(counter.gates.calls.get(request.holdId)).toHaveLength(begun);
        }
        gate?.open();
        for (const sent of await Promise.all(later))
          expect(['ANSWERED', 'ENDED'], point).toContain(sent.outcome);
        await asked;
        expect(await counter.end(request), point).toBe(ends[point]);
        expect(await counter.movementsOf(request), point).toEqual([
          'reserve',
          ends[point] === 'CONFIRMED' ? 'confirm_sold' : 'release_reservation',
        ]);
      }),
    );
    expect(counter.gates.mostAtOnce).toBe(1);
    const sold = points.filter((point) => ends[point] === 'CONFIRMED').length;
    const available = points.length - sold;
    expect(await counter.counts(sku)).toEqual({ available, held: 0, sold });
  });

  test('B24: before its first task: it is claimed and given back, and its caller is answered', async () => {
    const sku = await counter.shop.product([1]);
    const claimDeadline = await counter.shop.now(20_000);
    const request = await counter.requestFor(sku, { claimDeadline });
    await counter.temporal.stop();
    await send(counter.temporal.holds, request, { kind: 'start' }, { withinMs });
    const handle = handleOf(counter.temporal, request.holdId);
    await handle.cancel();
    const claiming = claimAgain(counter.temporal, request);
    await handle.cancel();
    await counter.temporal.start();
    expect(await claiming).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(await counter.end(request)).toBe('CANCELLED');
    expect(await counter.movementsOf(request)).toEqual(['reserve', 'release_reservation']);
  });
});

async function waiting({ holdId }: { holdId: string }): Promise<number> {
  return (await stateOf(counter.temporal, holdId)).waiting;
}
