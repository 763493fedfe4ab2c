import { claim } from '../db/claim.js';
import type { ClaimOutcome, ClaimRequest } from '../db/claim.js';
import { claimBatch } from '../db/claimBatch.js';
import type { Database } from '../db/database.js';
import { Lane, Places } from './together.js';

/**
 * Two at once for one product keep its lock busy: one is decided while the other is on its way. Not
 * more, so that a product whose bins somebody keeps locked never takes every connection.
 */
const perProduct = 2;

/**
 * Claims of one product that meet go to Postgres together: one lock and one commit for up to 50 of them
 * (R14). One that is alone goes alone. Products take turns.
 *
 * @param connections of the claims' pool: so many calls run at once
 */
export function claimTogether(
  db: Database,
  connections: number,
): (request: ClaimRequest) => Promise<ClaimOutcome> {
  const places = new Places(connections);
  const lanes = new Map<string, Lane<ClaimRequest, ClaimOutcome>>();
  const one = (request: ClaimRequest) => claim(db, request);
  const many = (requests: ClaimRequest[]) =>
    requests.length === 1
      ? Promise.resolve([{ outcome: 'ALONE' } as const])
      : claimBatch(db, requests);

  return (request) => {
    const skus = request.lines?.map(({ sku }) => sku);
    const name = JSON.stringify(skus ?? { cartOf: request.buyerId });
    const batch = skus?.length === 1 ? { batch: many } : {};
    // Forgotten by the lane's own word: an answer is heard before its statement's place is free again.
    const whenIdle = () => void lanes.delete(name);
    const lane =
      lanes.get(name) ?? new Lane(places, { most: perProduct, alone: one, ...batch, whenIdle });
    lanes.set(name, lane);
    return lane.ask(request);
  };
}
