import type { HoldActivities } from '../../activities/index.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { send } from '../../workflows/contract.js';
import type { Counter } from './counter.js';
import { until } from './engine.js';
import type { Gate, Moment } from './gates.js';
import { cancel, claimAgain, extend, pay, release, withinMs } from './talk.js';

/** Where a hold's workflow can be when somebody acts on it from outside. */
export const points = [
  'in the wait',
  'claim before',
  'claim after',
  'recordPayment before',
  'recordPayment after',
  'confirm before',
  'confirm after',
  'expire before',
  'expire after',
  'cancel before',
  'cancel after',
  'extend before',
  'extend after',
] as const;
export type Point = (typeof points)[number];

/** A hold that stands at a point, and what lets it go on. */
export interface Standing {
  request: HoldRequest;
  /** Undefined in the wait, where nothing is under way. */
  gate: Gate | undefined;
  /** The answer to whoever asked for what is under way; settles when it is given or lost. */
  asked: Promise<unknown>;
}

/** Brings a hold of one unit to the point and stops it there. */
export async function standAt(counter: Counter, sku: string, point: Point): Promise<Standing> {
  const { temporal, gates } = counter;
  const holdSeconds = point.startsWith('expire') ? 1 : null;
  if (point === 'in the wait') {
    const request = await counter.hold(sku);
    return { request, gate: undefined, asked: Promise.resolve() };
  }
  const [name, moment] = point.split(' ') as [keyof HoldActivities, Moment];
  const request = await counter.requestFor(sku, {
    holdSeconds,
    claimDeadline: await counter.shop.now(20_000),
  });
  const gate = gates.stopAt(request.holdId, name, moment);
  const claiming = claimAgain(temporal, request);
  if (name !== 'claim') await claiming;
  const asks: Record<keyof HoldActivities, () => Promise<unknown>> = {
    claim: () => claiming,
    recordPayment: () => pay(temporal, request, { paymentId: request.holdId }),
    confirm: () => pay(temporal, request, { paymentId: request.holdId }),
    expire: () => send(temporal.holds, request, { kind: 'start' }, { withinMs }),
    cancel: () => cancel(temporal, request),
    extend: () => extend(temporal, request, 5),
    release: () => release(temporal, request, { [sku]: 1 }),
  };
  const asked = asks[name]();
  await until(`it stands at ${point}`, () => gate.reached, 20_000);
  return { request, gate, asked };
}
