/**
 * The activities as workflows see them: how long a try may take, how it is repeated, and the words
 * that an operator reads. These may change freely: a replay does not compare them.
 */
import { proxyActivities, proxyLocalActivities, workflowInfo } from '@temporalio/workflow';
import type { Activities } from '../activities/index.js';
import type { ExpireOutcome } from '../db/expire.js';
import type { Claimed, HoldRequest } from './messages.js';
import { queuesBeside } from './taskQueues.js';

/**
 * Above what `db/` allows one call (statement timeout + 2 s). The retries have no end, so that they
 * outlive any outage. The heartbeat finds a killed worker after 4 s and not after 10.
 */
const change = {
  startToCloseTimeout: '10 s',
  heartbeatTimeout: '4 s',
  retry: { initialInterval: '200 ms', maximumInterval: '10 s' },
} as const;

const quick = proxyLocalActivities<Pick<Activities, 'claim'>>({
  startToCloseTimeout: '8 s',
  // By count: a scheduleToCloseTimeout does not end a local activity's retries in SDK 1.24.
  retry: { initialInterval: '100 ms', maximumInterval: '1 s', maximumAttempts: 6 },
  summary: 'claim the units',
});
const quickly = proxyLocalActivities<Pick<Activities, 'expire'>>({
  // So long it keeps a workflow task from others; what it may still do, the next try finds done.
  startToCloseTimeout: '2 s',
  retry: { maximumAttempts: 1 },
  summary: 'expire: give the units back',
});
const patient = proxyActivities<Pick<Activities, 'claim'>>({
  ...change,
  summary: 'claim the units: find out what happened',
});

export const { recordPayment } = proxyActivities<Pick<Activities, 'recordPayment'>>({
  ...change,
  summary: 'record payment',
});
export const { confirm } = proxyActivities<Pick<Activities, 'confirm'>>({
  ...change,
  summary: 'confirm payment',
});
/**
 * Gives the units back. The first try is a local activity: thousands of holds may end in the same second, and so
 * each needs one workflow task and not two. What does not succeed at once is asked again as a regular activity, which
 * an operator can see failing, on a queue of its own: nobody waits for it (F35).
 */
export async function expire(holdId: string): Promise<ExpireOutcome> {
  const taskQueue = queuesBeside(workflowInfo().taskQueue).expiries;
  const patient = proxyActivities<Pick<Activities, 'expire'>>({
    ...change,
    taskQueue,
    summary: 'expire: give the units back',
  });
  return quickly.expire(holdId).catch(() => patient.expire(holdId));
}
export const { cancel } = proxyActivities<Pick<Activities, 'cancel'>>({
  ...change,
  summary: 'cancel: give the units back',
});
export const { extend } = proxyActivities<Pick<Activities, 'extend'>>({
  ...change,
  summary: 'extend the payment window',
});
export const { release } = proxyActivities<Pick<Activities, 'release'>>({
  ...change,
  summary: 'release: give some units back',
});

export const { requestRefund } = proxyActivities<Pick<Activities, 'requestRefund'>>({
  ...change,
  summary: 'see whether money is to go back',
});
export const { decidePayment } = proxyActivities<Pick<Activities, 'decidePayment'>>({
  ...change,
  summary: "carry out an operator's decision",
});
export const { returnSale } = proxyActivities<Pick<Activities, 'returnSale'>>({
  ...change,
  summary: 'take sold units back',
});
/** Asked for days if need be; each try begins by asking for what an earlier one may have done. */
export const { sendRefund } = proxyActivities<Pick<Activities, 'sendRefund'>>({
  startToCloseTimeout: '60 s',
  heartbeatTimeout: '10 s',
  retry: { initialInterval: '1 s', maximumInterval: '1 hour' },
  summary: 'send the money back',
});

/**
 * Takes the units. The buyer waits, so it is a local activity (33 ms against 45). When its tries
 * end without an answer the units may be taken or not; the same claim is then asked as a regular
 * activity, which an operator can see failing, until Postgres says what happened.
 */
export async function claimUnits({
  indexed: _,
  ...request
}: HoldRequest): Promise<Claimed | { outcome: 'CLAIM_TOO_LATE' }> {
  const claim = await quick.claim(request).catch(() => patient.claim(request));
  if (claim.outcome === 'CLAIM_TOO_LATE' || 'requestHash' in claim) return claim;
  return { ...claim, requestHash: request.requestHash };
}
