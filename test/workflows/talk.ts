import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { send } from '../../workflows/contract.js';
import type { HoldRequest, PaymentSignal } from '../../workflows/contract.js';
import type { Engine } from './engine.js';
import { request } from './fakeDatabase.js';

export const withinMs = 10_000;

export function payment(changes: Partial<PaymentSignal> = {}): PaymentSignal {
  return { provider: 'fake', paymentId: 'p1', amountMinor: 100, currency: 'EUR', ...changes };
}

/** Claims like the API does, and expects to get the units. */
export async function hold(
  { holds }: Engine,
  changes: Partial<HoldRequest> = {},
): Promise<HoldRequest> {
  const wanted = request(changes);
  const sent = await send(holds, wanted, { kind: 'claimed' }, { withinMs });
  expect(sent).toMatchObject({ outcome: 'ANSWERED', answer: { outcome: 'HELD' } });
  return wanted;
}

export function claimAgain({ holds }: Engine, wanted: HoldRequest) {
  return send(holds, wanted, { kind: 'claimed' }, { withinMs });
}

export function pay({ holds }: Engine, wanted: HoldRequest, changes: Partial<PaymentSignal> = {}) {
  return send(holds, wanted, { kind: 'payment', payment: payment(changes) }, { withinMs });
}

export function cancel({ holds }: Engine, wanted: HoldRequest, requestId: string = randomUUID()) {
  const ask = { kind: 'cancel', reason: 'changed mind', actor: 'shop', requestId } as const;
  return send(holds, wanted, ask, { withinMs });
}

export function extend(
  { holds }: Engine,
  wanted: HoldRequest,
  seconds: number,
  requestId: string = randomUUID(),
) {
  const ask = { kind: 'extend', seconds, actor: 'shop', requestId } as const;
  return send(holds, wanted, ask, { withinMs });
}

export function release(
  { holds }: Engine,
  wanted: HoldRequest,
  lines: Record<string, number>,
  requestId: string = randomUUID(),
) {
  const ask = {
    kind: 'release',
    lines: Object.entries(lines).map(([sku, quantity]) => ({ sku, quantity })),
    reason: 'one is enough',
    actor: 'shop',
    requestId,
  } as const;
  return send(holds, wanted, ask, { withinMs });
}
