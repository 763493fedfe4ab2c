import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { RefundRequest } from '../../activities/payments/provider.js';
import { verify } from '../../api/payments.js';
import { paymentEvent } from '../../api/schemas.js';
import type { Charge } from '../../cli/sandbox/book.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox, SandboxOptions } from '../../cli/sandbox/sandbox.js';
import { recorder } from './recorder.js';
import type { Answer, Heard, Recorder } from './recorder.js';

export type Behaviour = NonNullable<SandboxOptions['behaviour']>;
export const never = new AbortController().signal;
export const secret = `whsec_${randomBytes(32).toString('base64')}`;
export const holdId = randomUUID();
const open: { close(): Promise<void> }[] = [];
export const taken: Answer = { status: 200, body: { outcome: 'RECORDED' } };

/** Everything that was started here; a test file closes it after each test. */
export async function closeAll(): Promise<void> {
  await Promise.all(open.splice(0).map((one) => one.close()));
}

export function kept<T extends { close(): Promise<void> }>(one: T): T {
  open.push(one);
  return one;
}

/** Stands for the API: reads of holds and orders are answered by `shop`, events by `answer`. */
export async function api(
  answer: (heard: Heard, events: Heard[]) => Answer | Promise<Answer> = () => taken,
  shop: (path: string) => Answer = () => ({ status: 404 }),
) {
  const server = await recorder((heard, all) =>
    heard.method === 'GET' ? shop(heard.path) : answer(heard, events(all)),
  );
  open.push(server);
  return server;
}

export const events = (heard: Heard[]) =>
  heard.filter(({ path }) => path === '/v1/payments/events');
export const idOf = ({ headers }: Heard) => String(headers['webhook-id']);

/** Checks the event as the API does: by its form, and unless told otherwise by its signature. */
export function read(heard: Heard, { signed = true } = {}) {
  const check = () => verify(heard.raw, heard.rawHeaders, [secret]);
  if (signed) expect(check()).toBe(idOf(heard));
  else expect(check).toThrow('not accepted');
  return paymentEvent.parse(JSON.parse(heard.raw.toString()));
}

export async function start(
  server: Recorder,
  options: Partial<SandboxOptions> = {},
): Promise<Sandbox> {
  const sandbox = await startSandbox({
    secret,
    deliverTo: server.url,
    behaviour: { webhooks: { first_pause_ms: 20, span_ms: 60_000 } },
    ...options,
  });
  open.push(sandbox);
  return sandbox;
}

export async function post(sandbox: Sandbox, path: string, body: object) {
  const answer = await fetch(sandbox.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return {
    status: answer.status,
    body: (await answer.json()) as { charges: Charge[]; code?: string },
  };
}

export async function charge(sandbox: Sandbox, asked: object = {}): Promise<Charge[]> {
  const { status, body } = await post(sandbox, '/charges', { hold_id: holdId, ...asked });
  expect(body.code).toBeUndefined();
  expect(status).toBe(201);
  return body.charges;
}

/** Until nothing is on its way any more. */
export async function delivered({ book }: Sandbox) {
  await expect
    .poll(() => [...book.events.values()].every(({ state }) => state !== 'waiting'), {
      timeout: 15_000,
    })
    .toBe(true);
  return [...book.events.values()];
}

export async function behave({ url }: Sandbox, behaviour: Behaviour): Promise<void> {
  const answer = await fetch(`${url}/behaviour`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(behaviour),
  });
  expect(answer.status).toBe(200);
}

export function refundOf(paymentId = 'pay_1', holdId = 'hold_1'): RefundRequest {
  const key = `refund-${paymentId}-late`;
  return { paymentId, amountMinor: 2500, currency: 'EUR', key, reason: 'LATE', holdId };
}
