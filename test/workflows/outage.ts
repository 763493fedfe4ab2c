import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import type { HoldRequest } from '../../workflows/contract.js';
import { cable } from '../api/cable.js';
import type { Cable } from '../api/cable.js';
import { sharedCounter } from './counter.js';
import type { Counter } from './counter.js';
import { endOf, handleOf, until } from './engine.js';
import { cancel, extend, pay } from './talk.js';

/** The activities' way to Postgres, which can be cut. */
export interface Outage {
  counter: Counter;
  /** Cuts it under a hold in each state, for at least so long, and says how each of them ended. */
  of(ms: number): Promise<void>;
}

export function sharedOutage(): Outage {
  let way: Cable;
  const counter = sharedCounter({
    local: 10,
    changes: 10,
    async way(url) {
      const { hostname, port } = new URL(url);
      way = await cable({ host: hostname, port: Number(port) });
      const through = new URL(url);
      through.host = way.address;
      return through.href;
    },
  });
  return { counter, of: (ms) => cut(counter, way, ms) };
}

/** A hold in each state loses its database; an operator sees what it waits for, and each ends right. */
async function cut(counter: Counter, way: Cable, ms: number): Promise<void> {
  const { temporal, shop, gates } = counter;
  const sku = await shop.product([20]);
  const held = () => counter.hold(sku);
  const confirming = await held();
  const gate = gates.stopAt(confirming.holdId, 'confirm', 'before');
  await pay(temporal, confirming, { paymentId: confirming.holdId });
  await until('about to confirm', () => gate.reached);
  const [cancelling, extending, paid] = await Promise.all([held(), held(), held()]);
  const expiring = await counter.hold(sku, { holdSeconds: 2 });
  const claiming = await counter.requestFor(sku, { claimDeadline: await shop.now(ms + 120_000) });
  const late = await counter.requestFor(sku, { claimDeadline: await shop.now(1500) });

  await way.pull();
  const backAt = Date.now() + ms;
  gate.open();
  const start = (request: HoldRequest) =>
    temporal.holds.client.workflow.start('hold', {
      workflowId: `hold:${request.holdId}`,
      taskQueue: `${temporal.holds.prefix}tahan-holds`,
      args: [request],
    });
  await Promise.all([start(claiming), start(late)]);
  const cancelled = cancel(temporal, cancelling);
  const extended = extend(temporal, extending, 60, 'once');
  await pay(temporal, paid, { paymentId: paid.holdId });

  const waits: [HoldRequest, string][] = [
    [claiming, 'claim'],
    [late, 'claim'],
    [expiring, 'expire'],
    [paid, 'recordPayment'],
    [confirming, 'confirm'],
    [cancelling, 'cancel'],
    [extending, 'extend'],
  ];
  for (const [request, name] of waits)
    await until(`${name} is shown as failing`, () => isShown(counter, request, name), 30_000);
  await pause(Math.max(0, backAt - Date.now()));
  // Still shown, however long it lasted: nobody gave up, and nothing was decided.
  for (const [request, name] of waits) expect(await isShown(counter, request, name)).toBe(true);
  expect(await counter.counts(sku)).toEqual({ available: 15, held: 5, sold: 0 });

  await way.plug();
  for (const request of [paid, confirming]) expect(await counter.end(request)).toBe('CONFIRMED');
  expect(await counter.end(expiring)).toBe('EXPIRED');
  expect(await counter.end(cancelling)).toBe('CANCELLED');
  await expect(endOf(temporal, late.holdId)).rejects.toMatchObject({
    cause: { type: 'CLAIM_TOO_LATE' },
  });
  await until('the claim', async () => (await statusOf(shop, claiming)) === 'HELD', 15_000);
  const { extensions } = await counter.row(extending);
  expect(extensions).toBe(1);
  for (const request of [claiming, extending]) {
    await cancel(temporal, request);
    expect(await counter.end(request)).toBe('CANCELLED');
  }
  await Promise.all([cancelled, extended]);
  expect(await counter.counts(sku)).toEqual({ available: 18, held: 0, sold: 2 });
}

/** As the Temporal UI shows it: the activity, its attempt, and the code of its error. */
async function isShown({ temporal }: Counter, request: HoldRequest, name: string) {
  const { raw } = await handleOf(temporal, request.holdId).describe();
  const [pending] = raw.pendingActivities ?? [];
  return (
    pending?.activityType?.name === name &&
    pending.attempt! > 1 &&
    pending.lastFailure?.applicationFailureInfo?.type === 'DATABASE_UNAVAILABLE'
  );
}

async function statusOf(shop: Counter['shop'], { holdId }: HoldRequest) {
  const [row] = await shop.query<{ status: string }>(
    'select status from tahan.holds where id = $1',
    [holdId],
  );
  return row?.status;
}
