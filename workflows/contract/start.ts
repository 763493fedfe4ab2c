import { TypedSearchAttributes } from '@temporalio/common';
import type { SearchAttributePair } from '@temporalio/common';
import type { WorkflowStartOptions } from '@temporalio/client';
import type { OpenHold } from '../../db/openHolds.js';
import type { hold } from '../hold.js';
import type { HoldRequest } from '../messages.js';
import { holdBuyer, holdSkus, holdStatus } from '../searchAttributes.js';
import { workflowId } from '../ids.js';
import { skusThatFit, wordsFor } from '../lines.js';
import { taskQueues } from '../taskQueues.js';

/**
 * How the workflow of this hold is started, whoever starts it: with what an operator must be able
 * to read without opening JSON, even while no worker runs. Never with a workflow timeout: a hold
 * that Temporal ended for its age would leave its units taken.
 */
export async function holdStartOptions(prefix: string, request: HoldRequest) {
  const buyer = await shortHash(request.buyerId);
  return {
    workflowId: workflowId(request.holdId),
    taskQueue: taskQueues(prefix).holds,
    args: [request],
    // What is in a cart is known when it is claimed: the board says it then.
    staticSummary: `${request.lines === null ? 'the cart' : wordsFor(request.lines)} for buyer ${buyer.slice(0, 8)}`,
    ...(request.indexed ? { typedSearchAttributes: attributesOf(request, buyer) } : {}),
  } satisfies WorkflowStartOptions<typeof hold>;
}

/**
 * The request of a hold that already has a row, for every message about it. Its deadline has
 * passed on purpose: such a start may find the hold, but never take units.
 */
export function adoptionRequest(row: OpenHold, { indexed }: { indexed: boolean }): HoldRequest {
  return {
    holdId: row.holdId,
    buyerId: row.buyerId,
    idempotencyKey: row.idempotencyKey,
    requestHash: row.requestHash,
    lines: row.lines.map(({ sku, quantity }) => ({ sku, quantity })),
    holdSeconds: null,
    claimDeadline: '1970-01-01T00:00:00.000Z',
    order: false,
    metadata: {},
    indexed,
  };
}

function attributesOf(request: HoldRequest, buyer: string): TypedSearchAttributes {
  const pairs: SearchAttributePair[] = [
    ...(request.lines === null ? [] : [{ key: holdSkus, value: skusThatFit(request.lines) }]),
    { key: holdBuyer, value: buyer },
    { key: holdStatus, value: 'CLAIMING' },
  ];
  return new TypedSearchAttributes(pairs);
}

/** The shop's buyer id may be personal, and anyone with access to Temporal reads what is sent there. */
export async function shortHash(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Buffer.from(digest).toString('hex').slice(0, 16);
}
