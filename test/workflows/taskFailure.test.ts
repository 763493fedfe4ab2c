import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { connect, send } from '../../workflows/contract.js';
import type { HoldRequest, Temporal } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { endOf, failedTasks, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { mutant } from './mutant.js';
import { spawnProcess } from './process.js';
import type { OwnProcess } from './process.js';
import { claimAgain, withinMs } from './talk.js';

let shop: Shop;
let temporal: Temporal;
let caller: Engine;
const folder = mkdtempSync(join(tmpdir(), 'tahan-test-bundle-'));
const prefix = `f${randomUUID().slice(0, 8)}-`;
const started: OwnProcess[] = [];

beforeAll(async () => {
  shop = await openShop();
  temporal = connect({ address: inject('temporalAddress') });
  caller = { holds: { client: temporal.client, prefix, indexed: true } } as Engine;
});
afterEach(() => {
  for (const { child } of started.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await temporal.close();
  await shop.close();
  rmSync(folder, { recursive: true });
});

async function startWorker(env: Record<string, string> = {}): Promise<OwnProcess> {
  const own = { DATABASE_URL: shop.url, TAHAN_TASK_QUEUE_PREFIX: prefix, ...env };
  const worker = spawnProcess('worker', own);
  started.push(worker);
  await worker.ready();
  return worker;
}

/** Warnings of the worker about a run: a script that was cut off is told by its run id alone. */
async function alarms({ lines }: OwnProcess, { holdId }: HoldRequest): Promise<string[]> {
  const { runId } = await handleOf(caller, holdId).describe();
  return lines.filter((line) => line.includes(runId) && /^\{"level":[456]0/.test(line));
}

describe('F33, F36: workflow code that throws or never ends', { timeout: 120_000 }, () => {
  test('F33, F36: the worker warns with the hold and the reason, Temporal shows the failing task, and a mended worker ends all', async () => {
    const file = join(folder, 'defect.js');
    const { code } = mutant({
      'await claim();': `
        if (request.buyerId === 'broken') throw new Error('a defect');
        if (request.buyerId === 'busy') for (let i = 0; i >= 0; i += 1);
        await claim();`,
    });
    writeFileSync(file, code);
    const bad = await startWorker({ TAHAN_WORKFLOW_BUNDLE: file });
    const sku = await shop.product([3]);
    const [broken, busy, fine] = await Promise.all(
      ['broken', 'busy', 'fine'].map(async (buyerId) => {
        const claimDeadline = await shop.now(120_000);
        const of = { buyerId, claimDeadline, holdSeconds: 2 };
        return { ...(await shop.request({ [sku]: 1 }, of)), indexed: true };
      }),
    );
    await send(caller.holds, broken!, { kind: 'start' }, { withinMs });
    expect(await claimAgain(caller, fine!)).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(await endOf(caller, fine!.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    // One that never ends takes the thread of all others until it is cut off after 5 s.
    await send(caller.holds, busy!, { kind: 'start' }, { withinMs });
    for (const [request, reason] of [
      [broken!, /a defect/],
      [busy!, /timed out/],
    ] as const) {
      await until(
        `the worker warns: ${reason}`,
        async () => (await alarms(bad, request)).some((line) => reason.test(line)),
        40_000,
      );
      await until(
        'Temporal shows the failing task',
        async () => {
          const { raw } = await handleOf(caller, request.holdId).describe();
          return (raw.pendingWorkflowTask?.attempt ?? 0) > 1;
        },
        20_000,
      );
      expect((await failedTasks(caller, request.holdId)).failed.join()).toMatch(reason);
    }
    bad.child.kill('SIGKILL');
    await bad.exit;
    await startWorker();
    for (const { holdId } of [broken!, busy!])
      expect(await endOf(caller, holdId)).toMatchObject({ outcome: 'EXPIRED' });
    expect(await audit(shop.url)).toEqual({});
  });
});
