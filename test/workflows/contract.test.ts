import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import * as contract from '../../workflows/contract.js';
import { skusThatFit, wordsFor } from '../../workflows/lines.js';
import { PaymentWindow } from '../../workflows/window.js';
import { engine, handleOf } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import { hold } from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());

interface Metadata {
  definition: Record<
    'signalDefinitions' | 'updateDefinitions' | 'queryDefinitions',
    { name: string }[]
  >;
}

test('B25 F38 every signal, update and query of the contract has a handler in a running hold or settlement, and there is no other', async () => {
  const { holdId } = await hold(shop);
  const handle = handleOf(shop, holdId);
  database.instead.requestRefund = () => ({ outcome: 'NOT_DUE', settlement: 'NEEDS_REVIEW' });
  const parked = { provider: 'fake', paymentId: holdId };
  database.instead.confirm = () => ({ outcome: 'SURPLUS' });
  await contract.sendSettle(shop.holds, holdId, parked, { withinMs: 10_000 });
  const settling = shop.holds.client.workflow.getHandle(contract.settleWorkflowId(parked));
  const both = await Promise.all(
    [handle, settling].map((one) => one.query<Metadata>('__temporal_workflow_metadata')),
  );
  const handled = (key: keyof Metadata['definition']) =>
    both
      .flatMap(({ definition }) => definition[key] ?? [])
      .map(({ name }) => name)
      .filter((name) => !name.startsWith('__'));
  const named = (type: string) =>
    Object.values(contract)
      .filter((one) => typeof one === 'object' && 'type' in one && one.type === type)
      .map((one) => (one as { name: string }).name);
  // Those of a return and its refund: returnSale.test.ts asks and hears them.
  const [ofRefund, ofReturn] = ['sendAgain', 'returned'];
  expect(named('signal').sort()).toEqual(['paymentReceived', ofRefund]);
  expect([...handled('signalDefinitions'), ofRefund].sort()).toEqual(named('signal').sort());
  expect([...handled('updateDefinitions'), ofReturn].sort()).toEqual(named('update').sort());
  expect(handled('queryDefinitions').sort()).toEqual(named('query').sort());
  await Promise.all([handle.terminate(), settling.terminate()]);
});

test('ids, queues and names that the outside relies on never change by accident', () => {
  expect(contract.workflowId('4b1c')).toBe('hold:4b1c');
  expect(contract.settleWorkflowId({ provider: 'fake', paymentId: 'p' })).toBe('payment:fake:p');
  expect(contract.refundWorkflowId({ provider: 'fake', paymentId: 'p' }, 'settlement')).toBe(
    'refund:fake:p:settlement',
  );
  expect(contract.taskQueues('x-')).toEqual({
    holds: 'x-tahan-holds',
    expiries: 'x-tahan-expiries',
    effects: 'x-tahan-effects',
  });
  expect(contract.taskQueuePrefix({})).toBe('');
  expect(contract.taskQueuePrefix({ TAHAN_TASK_QUEUE_PREFIX: 'x-' })).toBe('x-');
});

test('only hold, settlePayment, refund and returnSale can be started as workflows', () => {
  const entry = readFileSync(new URL('../../workflows/index.ts', import.meta.url), 'utf8');
  const exported = entry.split('\n').filter((line) => line.startsWith('export'));
  expect(exported).toEqual([
    "export { hold } from './hold.js';",
    "export { refund } from './refund.js';",
    "export { returnSale } from './returnSale.js';",
    "export { settlePayment } from './settlePayment.js';",
  ]);
});

test('H12 SKUs are indexed whole, once, and in less than the 2,048 bytes that a start may carry', () => {
  const skus = Array.from({ length: 50 }, (_, index) => ({ sku: String(index).padStart(64, 'x') }));
  const fitting = skusThatFit(skus);
  expect(Buffer.byteLength(JSON.stringify(fitting))).toBeLessThanOrEqual(1800);
  expect(fitting.length).toBe(26);
  expect(skusThatFit([{ sku: 'A' }, { sku: 'A' }])).toEqual(['A']);
});

test('the summary names the lines, and counts those that do not fit', () => {
  expect(
    wordsFor([
      { sku: 'A', quantity: 2 },
      { sku: 'B', quantity: 1 },
    ]),
  ).toBe('2 x A, 1 x B');
  const many = Array.from({ length: 50 }, () => ({ sku: 'x'.repeat(64), quantity: 10_000 }));
  expect(wordsFor(many)).toMatch(/^10000 x x+, 10000 x x+ and 48 more$/);
});

test('a window takes whole milliseconds above zero, and refuses what is no time', () => {
  const window = new PaymentWindow();
  for (const none of [undefined, null, NaN, Infinity, '5']) expect(window.set(none)).toBe(false);
  expect(window.over).toBe(true);
  expect(window.set(60_000.2)).toBe(true);
  expect(window.over).toBe(false);
  expect(window.set(-5)).toBe(true);
  expect(window.paused).toBe(false);
  window.pause();
  expect(window.paused).toBe(true);
  expect(window.over).toBe(false);
});
