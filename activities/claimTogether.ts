import { claim } from '../db/claim.js';
import type { ClaimOutcome, ClaimRequest } from '../db/claim.js';
import { claimBatch } from '../db/claimBatch.js';
import type { Database } from '../db/database.js';
import { DatabaseFault } from '../db/faults.js';

/**
 * Two at once for one product keep its lock busy: one is decided while the other is on its way. Not
 * more, so that a product whose bins somebody keeps locked never takes every connection.
 */
const perProduct = 2;
/** What one transaction decides; a claim in it waits for all of them. */
const mostInABatch = 50;

interface Waiting {
  request: ClaimRequest;
  resolve: (outcome: ClaimOutcome) => void;
  reject: (error: unknown) => void;
}

/** The claims of the same products, in the order of their arrival. */
interface Lane {
  waiting: Waiting[];
  running: number;
}

/**
 * Claims of one product that meet go to Postgres together. Nothing waits for company: a claim that
 * finds a free place goes at once, alone, and what arrives while the places are taken becomes the next
 * batch. So an idle shop pays nothing for it, and a sale pays one lock and one commit for up to 50
 * claims (R14). Products take turns.
 *
 * Every claim gets its own answer. What the batch does not decide, or fails on, is asked alone, so
 * that a poisoned claim never fails its neighbours.
 *
 * @param connections of the claims' pool: so many calls run at once
 */
export function claimTogether(
  db: Database,
  connections: number,
): (request: ClaimRequest) => Promise<ClaimOutcome> {
  const lanes = new Map<string, Lane>();
  let running = 0;

  function next(): void {
    while (running < connections) {
      const free = ([, lane]: [string, Lane]) =>
        lane.waiting.length > 0 && lane.running < perProduct;
      const found = [...lanes].find(free);
      if (found === undefined) return;
      const [name, lane] = found;
      // Last in turn now.
      lanes.delete(name);
      lanes.set(name, lane);
      const together = lane.waiting[0]!.request.lines?.length === 1;
      void run(name, lane, lane.waiting.splice(0, together ? mostInABatch : 1));
    }
  }

  async function run(name: string, lane: Lane, batch: Waiting[]): Promise<void> {
    lane.running += 1;
    running += 1;
    await decide(db, batch);
    lane.running -= 1;
    running -= 1;
    if (lane.running === 0 && lane.waiting.length === 0) lanes.delete(name);
    next();
  }

  return (request) =>
    new Promise((resolve, reject) => {
      const name = JSON.stringify(
        request.lines?.map(({ sku }) => sku) ?? { cartOf: request.buyerId },
      );
      const lane = lanes.get(name) ?? { waiting: [], running: 0 };
      lanes.set(name, lane);
      lane.waiting.push({ request, resolve, reject });
      next();
    });
}

/** Never rejects: each claim hears its answer or its error. */
async function decide(db: Database, batch: Waiting[]): Promise<void> {
  if (batch.length === 1) return alone(db, batch[0]!);
  try {
    const outcomes = await claimBatch(
      db,
      batch.map(({ request }) => request),
    );
    const left: Waiting[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.outcome === 'ALONE') left.push(batch[index]!);
      else batch[index]!.resolve(outcome);
    }
    await eachAlone(db, left);
  } catch (error) {
    // Somebody's lock or an outage is everyone's: each is tried again by its own workflow. Anything else
    // is about one of them.
    if (error instanceof DatabaseFault) for (const one of batch) one.reject(error);
    else await eachAlone(db, batch);
  }
}

/** One after the other: the batch has one connection, and 50 more would be waited for in vain. */
async function eachAlone(db: Database, batch: Waiting[]): Promise<void> {
  for (const one of batch) await alone(db, one);
}

function alone(db: Database, { request, resolve, reject }: Waiting): Promise<void> {
  return claim(db, request).then(resolve, reject);
}
