import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { readHold } from '../../db/readHold.js';
import { connect, settleWorkflowId, workflowId } from '../../workflows/contract.js';
import type { Holds, HoldRequest, Temporal } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { emptyDatabase } from '../setup/database.js';
import { length } from '../setup/length.js';
import { until } from './engine.js';
import type { Engine } from './engine.js';
import { spawnProcess } from './process.js';
import type { OwnProcess } from './process.js';
import { forward } from './proxy.js';
import { cancel, claimAgain } from './talk.js';

let shop: Shop;
let temporal: Temporal;
let caller: Engine;
const prefix = `w${randomUUID().slice(0, 8)}-`;
const started: OwnProcess[] = [];

beforeAll(async () => {
  shop = await openShop();
  temporal = connect({ address: inject('temporalAddress') });
  const holds: Holds = { client: temporal.client, prefix, indexed: true };
  caller = { holds } as Engine;
});
afterEach(async () => {
  for (const { child } of started.splice(0)) child.kill('SIGKILL');
  expect(await audit(shop.url)).toEqual({});
});
afterAll(async () => {
  await temporal.close();
  await shop.close();
});

function startWorker(env: Record<string, string> = {}): OwnProcess {
  const own = { DATABASE_URL: shop.url, TAHAN_TASK_QUEUE_PREFIX: prefix, ...env };
  const worker = spawnProcess('worker', own);
  started.push(worker);
  return worker;
}

async function hold(sku: string, holdSeconds: number): Promise<HoldRequest> {
  const claimDeadline = await shop.now(20_000);
  const wanted = await shop.request({ [sku]: 1 }, { holdSeconds, claimDeadline });
  const request = { ...wanted, indexed: true };
  expect(await claimAgain(caller, request)).toMatchObject({ answer: { outcome: 'HELD' } });
  return request;
}

/** How late a hold was closed, by the database's clock. */
async function latenessMs({ holdId }: HoldRequest): Promise<number> {
  await until(
    'the hold has ended',
    async () => (await readHold(shop.db, holdId))!.status !== 'HELD',
    30_000,
  );
  const { closedAt, expiresAt, status } = (await readHold(shop.db, holdId))!;
  expect(status).toBe('EXPIRED');
  return Date.parse(closedAt!) - Date.parse(expiresAt!);
}

const underWay = length(40, 100);
const ending = length(20, 50);

/** Each starts one or two processes, and a busy machine takes its time for that. */
describe('the worker process', { timeout: 120_000 }, () => {
  test('R51 H10 kill -9 during five holds, and a new worker: all end within 4 s of their time', async () => {
    const sku = await shop.product([5]);
    const first = startWorker();
    await first.ready();
    const requests = await Promise.all(Array.from({ length: 5 }, () => hold(sku, 3)));
    first.child.kill('SIGKILL');
    await first.exit;
    await startWorker().ready();
    const readyAt = Date.now();
    for (const request of requests) {
      const { expiresAt } = (await readHold(shop.db, request.holdId))!;
      // On a busy machine the new process may be ready only after the end.
      const waitedMs = Math.max(0, readyAt - Date.parse(expiresAt!));
      expect((await latenessMs(request)) - waitedMs).toBeLessThan(4000);
    }
    // The durable timers fired on it; nothing was started anew.
    const { historyLength } = await temporal.client.workflow
      .getHandle(workflowId(requests[0]!.holdId))
      .describe();
    expect(historyLength).toBeLessThan(30);
  });

  test('H10 kill -9 in the middle of an expiry: heartbeats tell, and it ends within 12 s of its time', async () => {
    const sku = await shop.product([1]);
    const first = startWorker();
    await first.ready();
    const request = await hold(sku, 2);
    const other = await shop.session();
    await other.query('begin');
    await other.query('select from tahan.holds where id = $1 for update', [request.holdId]);
    await until('expire waits for the row', async () => {
      const waiting = await shop.query(
        `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%tahan.expire%'`,
      );
      return waiting.length === 1;
    });
    first.child.kill('SIGKILL');
    await first.exit;
    await other.query('rollback');
    // Whether the dead worker's statement still commits or not: the repeat finds out.
    await startWorker().ready();
    const readyAt = Date.now();
    const handle = temporal.client.workflow.getHandle(workflowId(request.holdId));
    expect(await handle.result()).toMatchObject({ outcome: 'EXPIRED' });
    const { closeTime } = await handle.describe();
    const { expiresAt } = (await readHold(shop.db, request.holdId))!;
    const waitedMs = Math.max(0, readyAt - Date.parse(expiresAt!));
    expect(closeTime!.getTime() - Date.parse(expiresAt!) - waitedMs).toBeLessThan(12_000);
  });

  test(`F7 B25 SIGTERM with ${underWay} claims under way: every answer is right, the process ends with 0, the next one carries on`, async () => {
    const sku = await shop.product([underWay]);
    const first = startWorker();
    await first.ready();
    const requests = await Promise.all(
      Array.from({ length: underWay }, async () => ({
        ...(await shop.request({ [sku]: 1 }, { claimDeadline: await shop.now(60_000) })),
        indexed: true,
      })),
    );
    const claims = requests.map((request) => claimAgain(caller, request));
    await until('some are claimed', async () => {
      const [row] = await shop.query<{ count: number }>(
        `select held::int as count from tahan.bins where sku = $1`,
        [sku],
      );
      return row!.count > 2;
    });
    first.child.kill('SIGTERM');
    expect(await first.exit).toBe(0);
    await startWorker().ready();
    for (const sent of await Promise.all(claims)) {
      const late = sent.outcome === 'NO_ANSWER';
      if (!late) expect(sent).toMatchObject({ answer: { outcome: 'HELD' } });
    }
    await until(
      'all are held',
      async () => {
        const [row] = await shop.query(`select available, held from tahan.bins where sku = $1`, [
          sku,
        ]);
        return JSON.stringify(row) === `{"available":0,"held":${underWay}}`;
      },
      30_000,
    );
    await Promise.all(requests.map((request) => cancel(caller, request)));
  });

  test(`F13 Temporal is away for 5 s, over the ends of ${ending} holds: the same worker ends them when it is back`, async () => {
    const sku = await shop.product([ending]);
    let way = await forward(0, inject('temporalAddress'));
    const worker = startWorker({ TEMPORAL_ADDRESS: way.address });
    await worker.ready();
    const requests = await Promise.all(Array.from({ length: ending }, () => hold(sku, 3)));
    way.close();
    await pause(5000);
    way = await forward(way.port, inject('temporalAddress'));
    const backAt = Date.now();
    for (const request of requests) {
      const { expiresAt } = (await readHold(shop.db, request.holdId))!;
      const waitedMs = Math.max(0, backAt - Date.parse(expiresAt!));
      expect((await latenessMs(request)) - waitedMs).toBeLessThan(30_000);
    }
    expect(worker.child.exitCode).toBeNull();
    way.close();
  });

  test('money that nobody decided about is settled when a worker starts', async () => {
    const sku = await shop.product([1], { latePayment: 'accept_if_available' });
    const first = startWorker();
    await first.ready();
    const request = await hold(sku, 1);
    await latenessMs(request);
    first.child.kill('SIGTERM');
    await first.exit;
    // It came late, and neither signal nor settlement reached Temporal.
    const paid = await shop.pay(request.holdId);
    expect(paid).toMatchObject({ inTime: false, settlement: null });
    await startWorker().ready();
    await until('settled', async () => {
      const { status, payments } = (await readHold(shop.db, request.holdId))!;
      return status === 'CONFIRMED' && payments[0]!.settlement === 'ACCEPTED_LATE';
    });
    expect(await temporal.client.workflow.getHandle(settleWorkflowId(paid)).result()).toEqual({
      outcome: 'CONFIRMED',
      settlement: 'ACCEPTED_LATE',
    });
  });

  test('it waits for servers that are away, and ends with its parent', async () => {
    const worker = startWorker({
      TEMPORAL_ADDRESS: '127.0.0.1:1',
      DATABASE_URL: 'postgres://u@127.0.0.1:1/x',
    });
    await until(
      'it waits',
      () => worker.lines.some((line) => /waiting for Postgres/.test(line)),
      20_000,
    );
    worker.child.stdin!.end();
    expect(await worker.exit).toBe(0);
  });

  test('a database without the schema is refused with a sentence that says what to do', async () => {
    const bare = await emptyDatabase();
    const worker = startWorker({ DATABASE_URL: bare.url, TAHAN_APP_DATABASE_URL: bare.url });
    expect(await worker.exit).toBe(1);
    expect(worker.lines.join('\n')).toMatch(/run \\"npm run migrate\\"/);
    await bare.drop();
  });

  test('wrong settings are named, without their values, and end it with 1', async () => {
    const worker = startWorker({
      TAHAN_STOCK_LOCK_TIMEOUT_SECONDS: 'soon',
      TAHAN_LOG_LEVEL: 'secret',
    });
    expect(await worker.exit).toBe(1);
    expect(worker.errors.join('\n')).toMatch(/TAHAN_LOG_LEVEL/);
    expect(worker.errors.join('\n')).not.toMatch(/secret/);
  });
});
