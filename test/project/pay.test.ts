import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { pay, UnknownHold } from '../../cli/payment.js';
import { announce, findRunning, withdraw } from '../../cli/running.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Secrets } from '../../cli/secrets.js';
import { recorder } from './recorder.js';
import type { Answer } from './recorder.js';
import { closeAll, holdId, kept, never, secret } from './sandboxed.js';

const secrets: Secrets = {
  shopKey: 'shop-key',
  operatorKey: 'operator-key',
  webhookSecret: secret,
  refundSecret: secret,
};

afterEach(closeAll);

interface Row {
  payment_id: string;
  status: string;
  settlement: string | null;
  settlement_reason: string | null;
}

/** An API with one hold, where the test decides what a payment does to it. */
async function running(settle: (row: Row, hold: { status: string }) => Promise<void> | void) {
  const hold = { status: 'HELD', expires_in_seconds: 600, payments: [] as Row[] };
  const server = await recorder(async ({ method, path, raw }): Promise<Answer> => {
    if (path === '/livez') return { status: 200 };
    if (method === 'GET')
      return path === `/v1/holds/${holdId}` ? { status: 200, body: hold } : { status: 404 };
    const { type, data } = JSON.parse(raw.toString()) as {
      type: string;
      data: { payment_id: string };
    };
    let row = hold.payments.find(({ payment_id }) => payment_id === data.payment_id);
    if (row === undefined) {
      row = { payment_id: data.payment_id, status: '', settlement: null, settlement_reason: null };
      hold.payments.push(row);
    }
    row.status = type.replace('payment.', '');
    if (row.status === 'succeeded') await settle(row, hold);
    return { status: 200, body: { outcome: 'RECORDED' } };
  });
  const sandbox = await startSandbox({ secret, deliverTo: server.url, shopKey: 'shop-key' });
  kept(server);
  kept(sandbox);
  const said: string[] = [];
  const options = { waitMs: Infinity, signal: never };
  const system = { apiUrl: server.url, sandboxUrl: sandbox.url, secrets };
  return {
    ...system,
    sandbox,
    said: () => said.join('\n'),
    pay: (name: string, asked: Parameters<typeof pay>[1] = {}, more: { waitMs?: number } = {}) =>
      pay(name, asked, system, (what, text) => said.push(`${what}: ${text}`), {
        ...options,
        ...more,
      }),
  };
}

it('pay shows the charge, each delivery with its answer, the hold, and the end of the payment', async () => {
  const system = await running((row, hold) => {
    row.settlement = 'APPLIED';
    hold.status = 'CONFIRMED';
  });
  expect(await system.pay(holdId, { story: 'fail_then_succeed' })).toBe(true);
  const [payment_id] = system.sandbox.book.charges.keys();
  expect(system.said().split('\n')).toEqual([
    'hold: HELD, 600 s left',
    `charge: ${payment_id}: 25.00 EUR taken`,
    'webhook: payment.failed -> 200 RECORDED',
    'webhook: payment.succeeded -> 200 RECORDED',
    'hold: CONFIRMED',
    `end: ${payment_id}: APPLIED`,
  ]);
});

it('B08: pay shows the refund of the second payment', async () => {
  let paid = 0;
  const system = await running(async (row) => {
    if (++paid === 1) return void (row.settlement = 'APPLIED');
    row.settlement_reason = 'SURPLUS';
    const request = {
      paymentId: row.payment_id,
      amountMinor: 2500,
      currency: 'EUR',
      key: `key-${row.payment_id}`,
      reason: 'SURPLUS',
      holdId,
    };
    const provider = signedHttp({ url: system.sandboxUrl, secret });
    await provider.refund(request, never);
    row.settlement = 'REFUNDED';
  });
  expect(await system.pay(holdId, { payments: 2 })).toBe(true);
  const [refund] = system.sandbox.book.refunds;
  expect(system.said()).toContain(`refund: ${refund!.refund_id}: 25.00 EUR back (SURPLUS)`);
  expect(system.said()).toContain(`end: ${refund!.payment_id}: REFUNDED (SURPLUS)`);
  expect(system.said()).toMatch(/end: \S+: APPLIED/);
  // In the order in which it happened: the money goes, and then it is told.
  expect(system.said()).toMatch(/refund: [^]*webhook: payment\.refunded/);
});

it('pay says what a payment still waits for when its time is over', async () => {
  const system = await running((row) => void (row.settlement = 'REFUND_DUE'));
  expect(await system.pay(holdId, { after_ms: 3_600_000 }, { waitMs: 0 })).toBe(false);
  expect(system.said()).toContain('its webhook is still to come');

  let paid = 0;
  const other = await running(
    (row) => void (row.settlement = ++paid === 1 ? 'APPLIED' : 'REFUND_DUE'),
  );
  expect(await other.pay(holdId, { payments: 2 }, { waitMs: 1500 })).toBe(false);
  expect(other.said()).toMatch(/end: \S+: APPLIED$/m);
  expect(other.said()).toMatch(/end: \S+: REFUND_DUE, not ended yet/);
});

it('pay for an unknown hold or order says so, and no money moves', async () => {
  const system = await running(() => undefined);
  const unknown = randomUUID();
  await expect(system.pay(unknown)).rejects.toThrow(
    new UnknownHold(`There is no hold ${unknown}.`),
  );
  await expect(system.pay('NO-ORDER')).rejects.toThrow(
    new UnknownHold('There is no order NO-ORDER.'),
  );
  expect(system.sandbox.book.charges.size).toBe(0);
});

it('a running system is found by its data folder as long as it answers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tahan-running-'));
  try {
    expect(await findRunning(folder)).toBeUndefined();
    const { apiUrl, sandboxUrl, sandbox } = await running(() => undefined);
    announce(folder, { apiUrl, sandboxUrl });
    const found = await findRunning(folder);
    expect(found).toMatchObject({ apiUrl, sandboxUrl });
    expect(Object.keys(found!.secrets).sort()).toEqual(Object.keys(secrets).sort());
    expect(await findRunning(folder)).toEqual(found);
    await sandbox.close();
    expect(await findRunning(folder)).toBeUndefined();
    withdraw(folder);
    expect(await findRunning(folder)).toBeUndefined();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
