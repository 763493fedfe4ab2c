import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createActivities } from '../../activities/index.js';
import type { PaymentRef } from '../../db/values.js';
import { sendSettle } from '../../workflows/contract.js';
import type { HoldRequest, Sent } from '../../workflows/contract.js';
import { length } from '../setup/length.js';
import { sharedCounter } from './counter.js';
import { engine, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { Gates } from './gates.js';
import { mutant } from './mutant.js';
import { cancel, claimAgain, extend, pay, withinMs } from './talk.js';

/** What a shop, a buyer and a payment service say to one hold in the same moment, on Postgres. */
const counter = sharedCounter({ local: 8, changes: 8, database: { connections: { changes: 8 } } });

/** Passes a payment on as the API does: stored, signalled, and settled by itself if the hold has ended. */
async function paid(temporal: Engine, request: HoldRequest): Promise<void> {
  await passOn(temporal, request, await counter.shop.pay(request.holdId));
}

/** The payment service signals by itself, and asks the API when it hears that the hold has ended. */
async function signalled(temporal: Engine, request: HoldRequest): Promise<void> {
  const payment = { provider: 'fake', paymentId: request.holdId };
  const sent = await pay(temporal, request, payment);
  if (sent.outcome !== 'ENDED') return expect(sent.outcome).toBe('SENT');
  await passOn(temporal, request, await counter.shop.pay(request.holdId, payment));
}

async function passOn(
  temporal: Engine,
  request: HoldRequest,
  { provider, paymentId }: PaymentRef,
): Promise<void> {
  const sent = await pay(temporal, request, { provider, paymentId });
  if (sent.outcome !== 'ENDED') return expect(sent.outcome).toBe('SENT');
  await sendSettle(temporal.holds, request.holdId, { provider, paymentId }, { withinMs });
}

/** By the workflow, or by its end: the row has the answer. */
function answered(sent: Sent<unknown>): void {
  expect(['ANSWERED', 'ENDED'], JSON.stringify(sent)).toContain(sent.outcome);
}

/** A payment that confirmed its hold, or is to be refunded, once; nothing is undecided. */
async function moneyOf(request: HoldRequest): Promise<string> {
  let settlement: string | null = null;
  await until('the money is settled', async () => {
    const { payments } = await counter.row(request);
    settlement = payments.length === 1 ? payments[0]!.settlement : null;
    return settlement !== null;
  });
  return settlement!;
}

/** In an order and at moments within 90 ms that differ from hold to hold. */
function within90ms<T>(index: number, asks: (() => Promise<T>)[]): Promise<T[]> {
  const turned = [...asks.slice(index % 3), ...asks.slice(0, index % 3)];
  const swapped = index % 2 === 0 ? turned : turned.reverse();
  return Promise.all(
    swapped.map(async (ask, at) => {
      await pause((at * ((index * 7) % 46)) % 90);
      return ask();
    }),
  );
}

/** Of 20 races each. */
const batches = length(2, 6);
const paidAtTheEnd = length(20, 60);

describe('cancel, extend and payment of one hold within 90 ms', { timeout: 120_000 }, () => {
  test(`H4, B22: ${20 * batches} races: one end, which is the row, one actor, the payment always counts, the extension is answered`, async () => {
    const ends: Record<string, number> = {};
    for (let batch = 0; batch < batches; batch += 1) {
      const sku = await counter.shop.product([20]);
      const requests = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const claimDeadline = await counter.shop.now(20_000);
          return counter.hold(sku, { claimDeadline });
        }),
      );
      await Promise.all(
        requests.map(async (request, index) => {
          const { temporal } = counter;
          await within90ms<unknown>(index + 20 * batch, [
            () => (index % 2 === 0 ? paid : signalled)(temporal, request),
            async () => answered(await cancel(temporal, request)),
            async () => answered(await extend(temporal, request, 5)),
          ]);
          const end = await counter.end(request);
          expect(await moneyOf(request)).toBe(end === 'CONFIRMED' ? 'APPLIED' : 'REFUND_DUE');
          ends[end] = (ends[end] ?? 0) + 1;
        }),
      );
      const { available, held, sold } = await counter.counts(sku);
      expect({ held, others: available + sold }).toEqual({ held: 0, others: 20 });
    }
    expect(counter.gates.mostAtOnce).toBe(1);
    // Both ends came up, else nothing was raced.
    expect(Object.keys(ends).sort()).toEqual(['CANCELLED', 'CONFIRMED']);
    expect(ends['CANCELLED']! + ends['CONFIRMED']!).toBe(20 * batches);
  });

  test(`B22: ${paidAtTheEnd} payments within 50 ms of the deadline: each is confirmed, or expired with one refund`, async () => {
    const sku = await counter.shop.product([paidAtTheEnd]);
    const requests = await Promise.all(
      Array.from({ length: paidAtTheEnd }, async () => {
        const claimDeadline = await counter.shop.now(20_000);
        return counter.hold(sku, { claimDeadline, holdSeconds: 4 });
      }),
    );
    const ends = await Promise.all(
      requests.map(async (request, index) => {
        const { expiresAt } = await counter.row(request);
        await pause(Date.parse(expiresAt!) - Date.now() - 50 + (index * 100) / paidAtTheEnd);
        await paid(counter.temporal, request);
        const end = await counter.end(request);
        expect(['CONFIRMED', 'EXPIRED']).toContain(end);
        expect(await moneyOf(request)).toBe(end === 'CONFIRMED' ? 'APPLIED' : 'REFUND_DUE');
        return end;
      }),
    );
    const sold = ends.filter((end) => end === 'CONFIRMED').length;
    expect(await counter.counts(sku)).toEqual({ available: paidAtTheEnd - sold, held: 0, sold });
  });
});

describe('a workflow whose handlers act by themselves', () => {
  const gates = new Gates();
  let twoActors: Engine;

  beforeAll(async () => {
    twoActors = await engine(gates.wrap(createActivities(counter.shop.db)), {
      workflowBundle: mutant({ 'await handle(message);': 'void handle(message);' }),
    });
    await twoActors.start();
  });
  afterAll(() => twoActors.close());

  test('H4: is noticed by the races above: activities of one hold overlap', async () => {
    const sku = await counter.shop.product([10]);
    await Promise.all(
      Array.from({ length: 10 }, async (_, index) => {
        const request = await counter.requestFor(sku, {
          claimDeadline: await counter.shop.now(20_000),
        });
        await claimAgain(twoActors, request);
        await within90ms<unknown>(index, [
          () => paid(twoActors, request),
          () => cancel(twoActors, request),
          () => extend(twoActors, request, 5),
        ]);
        await moneyOf(request);
        await handleOf(twoActors, request.holdId).terminate();
      }),
    );
    expect(gates.mostAtOnce).toBeGreaterThan(1);
  });
});
