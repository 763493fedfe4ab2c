import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, inject, test } from 'vitest';
import { adopt } from '../../cli/adopt.js';
import { root } from '../../cli/root.js';
import { send } from '../../workflows/contract.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { everything } from '../db/books.js';
import { sharedCounter } from './counter.js';
import { handleOf, until } from './engine.js';
import { points, standAt } from './points.js';
import type { Point, Standing } from './points.js';
import { cancel, claimAgain, extend, pay, withinMs } from './talk.js';

/** A terminated workflow runs no code: somebody else must find its hold, wherever it was. */
const counter = sharedCounter({ local: 70, changes: 70 });

const messages = {
  /** The fixed update id may read the dead run's answer; the API then starts it, see checkout. */
  async claimed(request: HoldRequest) {
    await claimAgain(counter.temporal, request);
    await send(counter.temporal.holds, request, { kind: 'start' }, { withinMs });
  },
  payment: (request: HoldRequest) => pay(counter.temporal, request, { paymentId: request.holdId }),
  cancel: (request: HoldRequest) => cancel(counter.temporal, request),
  extend: (request: HoldRequest) => extend(counter.temporal, request, 5),
  start: (request: HoldRequest) =>
    send(counter.temporal.holds, request, { kind: 'start' }, { withinMs }),
};

/** Ends the run without any code of it; what it had under way goes on as a zombie. */
async function terminate({ request }: Standing): Promise<void> {
  await handleOf(counter.temporal, request.holdId).terminate('by an operator');
}

async function letZombieGo({ gate }: Standing): Promise<void> {
  gate?.open();
  await until('the zombie is through', () => gate === undefined || gate.passed, 30_000);
}

/** The hold's workflow runs and obeys, or has ended; its end is the row's, with the units moved once. */
async function endsRight({ request, asked }: Standing, point: Point): Promise<void> {
  await cancel(counter.temporal, request);
  const status = await counter.end(request);
  await asked;
  const moved = status === 'CONFIRMED' ? 'confirm_sold' : 'release_reservation';
  expect(await counter.movementsOf(request), point).toEqual(['reserve', moved]);
  const { payments } = await counter.row(request);
  // Money always counts: it confirmed the hold, or it goes back.
  for (const { settlement } of payments)
    expect(['APPLIED', 'REFUND_DUE'], point).toContain(settlement);
}

async function adoptTwice(): Promise<void> {
  expect(await adopt(counter.shop.db, counter.temporal.holds)).toMatchObject({ failed: 0 });
  const books = await everything(counter.shop);
  const again = await adopt(counter.shop.db, counter.temporal.holds);
  expect(again).toMatchObject({ started: 0, failed: 0 });
  expect(await everything(counter.shop)).toEqual(books);
}

describe('F5, F6: terminated in the middle, and adopted by the next message of any kind', () => {
  test('F5, F6: at each point, by each kind: one end, the units move once, money counts', async () => {
    const pairs = points.flatMap((point) =>
      Object.values(messages).map((say) => [point, say] as const),
    );
    const sku = await counter.shop.product([pairs.length]);
    await Promise.all(
      pairs.map(async ([point, say], index) => {
        const one = await standAt(counter, sku, point);
        await terminate(one);
        // What was under way commits before the adoption, or after it.
        if (index % 2 === 0) await letZombieGo(one);
        await say(one.request);
        if (index % 2 === 1) await letZombieGo(one);
        await endsRight(one, point);
      }),
    );
    const { available, held, sold } = await counter.counts(sku);
    expect({ held, others: available + sold }).toEqual({ held: 0, others: pairs.length });
    counter.temporal.problems.length = 0; // the zombies' answers find nobody
  });
});

describe('F5, F6: terminated in the middle, and adopted by `npm run adopt`', () => {
  test('F5, F6: at each point: every HELD row gets its workflow, the stock is exact, a second run changes nothing', async () => {
    const sku = await counter.shop.product([points.length]);
    const all = await Promise.all(
      points.map(async (point) => {
        const one = await standAt(counter, sku, point);
        await terminate(one);
        await letZombieGo(one);
        return [point, one] as const;
      }),
    );
    await adoptTwice();
    for (const [point, one] of all) await endsRight(one, point);
    expect((await counter.counts(sku)).held).toBe(0);
    counter.temporal.problems.length = 0;
  });

  test('F6: killed before its first task it has taken nothing, and there is nothing to adopt', async () => {
    const sku = await counter.shop.product([1]);
    const request = await counter.requestFor(sku);
    await counter.temporal.stop();
    await send(counter.temporal.holds, request, { kind: 'start' }, { withinMs });
    await handleOf(counter.temporal, request.holdId).terminate();
    await counter.temporal.start();
    await adoptTwice();
    expect(await counter.counts(sku)).toEqual({ available: 1, held: 0, sold: 0 });
    const later = { ...request, claimDeadline: await counter.shop.now(20_000) };
    expect(await claimAgain(counter.temporal, later)).toMatchObject({
      answer: { outcome: 'HELD' },
    });
    await cancel(counter.temporal, request);
  });

  test('F5: as an operator runs it: it says what it did, twice', async () => {
    const sku = await counter.shop.product([3]);
    const requests = await Promise.all([1, 2, 3].map(() => counter.hold(sku)));
    for (const { holdId } of requests.slice(1))
      await handleOf(counter.temporal, holdId).terminate();
    expect(await runAdopt()).toBe('2 started, 1 already running, 0 failed\n');
    expect(await runAdopt()).toBe('0 started, 3 already running, 0 failed\n');
    for (const request of requests) {
      await cancel(counter.temporal, request);
      expect(await counter.end(request)).toBe('CANCELLED');
    }
  });
});

async function runAdopt(): Promise<string> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(root, 'dist', 'cli', 'adopt.js')],
    {
      env: {
        ...process.env,
        DATABASE_URL: counter.shop.url,
        TEMPORAL_ADDRESS: inject('temporalAddress'),
        TAHAN_TASK_QUEUE_PREFIX: counter.temporal.holds.prefix,
      },
    },
  );
  return stdout;
}
