import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { everything } from '../db/books.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { sharedCounter } from './counter.js';
import { handleOf } from './engine.js';
import { cancel, extend, pay } from './talk.js';

/** An operator resets a workflow: it runs again from an earlier task, on a database that remembers. */
const counter = sharedCounter({ local: 8, changes: 8 });

/** Wire numbers of temporal.api.enums.v1.ResetReapplyType. */
const reapply = { none: 2, all: 3 };

/** Every way to an end, as one request that has reached it. */
const lives: Record<string, (sku: string) => Promise<HoldRequest>> = {
  async confirmed(sku) {
    const request = await counter.hold(sku);
    await pay(counter.temporal, request, { paymentId: request.holdId });
    return request;
  },
  /** A short one: without its questions, the new run waits for the timer before it asks. */
  async 'extended and cancelled'(sku) {
    const request = await counter.hold(sku, { holdSeconds: 6 });
    await extend(counter.temporal, request, 1);
    await cancel(counter.temporal, request);
    return request;
  },
  expired: (sku) => counter.hold(sku, { holdSeconds: 1 }),
  async 'paid twice'(sku) {
    const request = await counter.hold(sku);
    const gate = counter.gates.stopAt(request.holdId, 'confirm', 'before');
    await pay(counter.temporal, request, { paymentId: `${request.holdId}-1` });
    await pay(counter.temporal, request, { paymentId: `${request.holdId}-2` });
    gate.open();
    return request;
  },
};

/** Where the run can be reset to: the end of each of its workflow tasks. */
async function boundaries({ holdId }: HoldRequest): Promise<number[]> {
  const { events } = await handleOf(counter.temporal, holdId).fetchHistory();
  return events!
    .filter((event) => event.workflowTaskCompletedEventAttributes)
    .map((event) => Number(event.eventId));
}

async function reset({ holdId }: HoldRequest, eventId: number, how: number): Promise<void> {
  const { workflowId } = handleOf(counter.temporal, holdId);
  const { runId } = await handleOf(counter.temporal, holdId).describe();
  await counter.temporal.holds.client.workflowService.resetWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId, runId },
    workflowTaskFinishEventId: eventId as never,
    requestId: randomUUID(),
    reason: 'by an operator',
    resetReapplyType: how,
  });
}

describe('F32: reset to each workflow task, with and without what came after it', () => {
  test.each(Object.keys(lives))(
    'F32: %s: row, stock and money stay as they are, and the new run ends as the row says',
    { timeout: 60_000 },
    async (life) => {
      // One hold for each boundary and kind of reset: the first one tells how many there are.
      const sku = await counter.shop.product([30]);
      const first = await lives[life]!(sku);
      const end = await counter.end(first);
      const places = await boundaries(first);
      expect(places.length).toBeGreaterThan(1);
      const resets = places.flatMap((_, index) =>
        Object.values(reapply).map((how) => ({ index, how })),
      );
      const requests = await Promise.all(resets.map(() => lives[life]!(sku)));
      for (const request of requests) expect(await counter.end(request)).toBe(end);
      const books = await everything(counter.shop);
      await Promise.all(
        resets.map(async ({ index, how }, at) => {
          const request = requests[at]!;
          const own = await boundaries(request);
          await reset(request, own[Math.min(index, own.length - 1)]!, how);
          expect(await counter.end(request)).toBe(end);
          const moved = end === 'CONFIRMED' ? 'confirm_sold' : 'release_reservation';
          expect(await counter.movementsOf(request)).toEqual(['reserve', moved]);
        }),
      );
      expect(await everything(counter.shop)).toEqual(books);
    },
  );

  test('F32: while it is held: the new run waits for the same end, and is paid like any other', async () => {
    const sku = await counter.shop.product([4]);
    const requests = await Promise.all([1, 2].map(() => counter.hold(sku)));
    await Promise.all(
      requests.map(async (request, index) => {
        const before = await counter.row(request);
        const [place] = await boundaries(request);
        await reset(request, place!, Object.values(reapply)[index]!);
        const { expiresAt } = await counter.row(request);
        expect(expiresAt).toBe(before.expiresAt);
        await pay(counter.temporal, request, { paymentId: request.holdId });
        expect(await counter.end(request)).toBe('CONFIRMED');
        expect(await counter.movementsOf(request)).toEqual(['reserve', 'confirm_sold']);
      }),
    );
  });
});
