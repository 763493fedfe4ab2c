/**
 * The worker of the floor, a process of its own: our workflows and our workers, with activities that
 * answer at once what a hold hears when all goes well.
 */
import { createServer } from 'node:http';
import { NativeConnection, Runtime } from '@temporalio/worker';
import type { Activities } from '../../activities/index.js';
import { readSettings } from '../../worker/settings.js';
import { createWorkers } from '../../worker/worker.js';
import type { FloorCounts } from './arm.js';

const settings = readSettings();
const counts: FloorCounts = {
  ...{ claims: 0, confirms: 0, expiries: 0 },
  ...{ firstDueMs: 0, lastExpiredMs: 0 },
};
const dueMs = new Map<string, number>();

const activities: Activities = {
  claim({ holdId, requestHash, holdSeconds }) {
    const remainingMs = (holdSeconds ?? 600) * 1000;
    const endsMs = Date.now() + remainingMs;
    counts.claims += 1;
    dueMs.set(holdId, endsMs);
    const expiresAt = new Date(endsMs).toISOString();
    return Promise.resolve({ outcome: 'HELD', holdId, requestHash, expiresAt, remainingMs });
  },
  recordPayment: ({ holdId }) =>
    Promise.resolve({
      outcome: 'RECORDED',
      holdId: holdId!,
      ...{ status: 'succeeded', inTime: true, settlement: null, settlementReason: null },
    }),
  confirm(holdId) {
    counts.confirms += 1;
    dueMs.delete(holdId);
    return Promise.resolve({ outcome: 'CONFIRMED', late: false });
  },
  expire(holdId) {
    const due = dueMs.get(holdId) ?? 0;
    dueMs.delete(holdId);
    counts.expiries += 1;
    counts.firstDueMs = counts.firstDueMs === 0 ? due : Math.min(counts.firstDueMs, due);
    counts.lastExpiredMs = Date.now();
    return Promise.resolve({ outcome: 'EXPIRED' });
  },
  ...{ cancel: never, extend: never, release: never, requestRefund: never },
  ...{ decidePayment: never, sendRefund: never, returnSale: never },
};

function never(): never {
  throw new Error('no bench asks for this');
}

Runtime.install({ shutdownSignals: [] });
const connection = await NativeConnection.connect({ address: settings.temporalAddress });
const workers = await createWorkers({
  connection,
  namespace: settings.temporalNamespace!,
  prefix: settings.taskQueuePrefix,
  activities,
  workflowBundle: { codePath: settings.workflowBundle! },
  changes: settings.changeConnections,
  cachedHolds: settings.cachedHolds,
  endsPerSecond: settings.endsPerSecond,
});
createServer((_req, res) => res.end(JSON.stringify(counts))).listen(
  Number(process.env['BENCH_COUNTS_PORT']),
  '127.0.0.1',
);
process.stdout.write(`${JSON.stringify({ ready: true })}\n`);
await workers.run();
