import { DatabaseFault } from '../db/faults.js';
import { readAfterDeadline } from '../db/readAfterDeadline.js';
import { readHold } from '../db/readHold.js';
import type { Hold } from '../db/readHold.js';
import type { Answers, HoldRequest, Sent } from '../workflows/contract.js';
import type { Api } from './app.js';
import type { Checkout } from './canonical.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import { holdTooLong, keyReused, noProduct, refusalProblem } from './refusals.js';

/** After the arrival, by the database's clock: a claim that gets its locks later takes nothing. */
export const claimWithinMs = 3500;
/** Until then the claim's answer is waited for; an answer given in the last moment still arrives. */
const listenUntilMs = 3800;

/** What the claim came to; a refusal is thrown as a problem. */
export type Decision =
  /** `repeated`: it was there before this request. */
  { hold: Hold; repeated: boolean } | 'UNDECIDED';

/** Asks the workflow, and then Postgres: what is shown is what was committed. */
export async function askForClaim(
  request: HoldRequest,
  wanted: Checkout,
  api: Api,
  clock: Clock,
): Promise<Decision> {
  const sent = await api.send(
    api.holds,
    request,
    { kind: 'claimed' },
    { withinMs: clock.left(listenUntilMs) },
  );
  if (sent.outcome === 'ANSWERED') {
    const found = await answered(sent.answer, wanted, api, clock);
    if (found !== null) return found;
  }
  if (sent.outcome === 'ENDED') {
    const hold = await readHold(api.db, wanted.holdId, clock.left()).catch(ifAway(null));
    if (hold !== null) return { hold, repeated: true };
  }
  if (sent.outcome === 'UNAVAILABLE' && sent.certain) {
    throw new Problem(
      'WORKFLOW_UNAVAILABLE',
      'Temporal can not be reached. Nothing was asked of it, so nothing is held by this request and nothing will be.',
      { retryAfterSeconds: 2 },
    );
  }
  return afterDeadline(sent, request, api, clock);
}

async function answered(
  answer: Answers['claimed'],
  wanted: Checkout,
  api: Api,
  clock: Clock,
): Promise<Decision | null> {
  // The answer may belong to another request with this key, which is not shown (S7); unless the row
  // is this request's, it is the key that was used twice.
  if (answer.outcome === 'KEY_REUSED' || answer.requestHash !== wanted.requestHash) {
    const hold = await readHold(api.db, wanted.holdId, clock.left());
    if (hold?.requestHash === wanted.requestHash) return { hold, repeated: true };
    throw keyReused();
  }
  switch (answer.outcome) {
    case 'HELD':
    case 'ALREADY': {
      // A stored answer may come from a dead run, and allocations are only in Postgres.
      const hold = await readHold(api.db, wanted.holdId, clock.left()).catch(
        ifAway('AWAY' as const),
      );
      if (hold === 'AWAY') return 'UNDECIDED';
      const repeated = answer.outcome === 'ALREADY' || hold?.status !== 'HELD';
      return hold && { hold, repeated };
    }
    case 'NOT_FOUND':
      throw noProduct(answer.sku);
    case 'HOLD_TOO_LONG':
      throw holdTooLong(answer.maxHoldSeconds);
    case 'INSUFFICIENT_STOCK':
    case 'BUYER_LIMIT':
    case 'BUYER_COOL_DOWN':
    case 'PRODUCT_INACTIVE':
    case 'MIXED_CURRENCIES':
    case 'CART_EMPTY':
      throw refusalProblem(answer);
  }
}

/**
 * No answer, or none to rely on: what was sent may have reached Temporal. Once the claim's
 * deadline has passed, Postgres can tell: a row; or the claim's key free and no row, which means
 * that nothing is held and nothing will be.
 */
async function afterDeadline(
  sent: Sent<Answers['claimed']>,
  { holdId, claimDeadline }: HoldRequest,
  api: Api,
  clock: Clock,
): Promise<Decision> {
  await clock.until(claimWithinMs + 50);
  const found = await readAfterDeadline(api.db, holdId, claimDeadline, clock.left()).catch(
    ifAway({ outcome: 'BUSY' } as const),
  );
  switch (found.outcome) {
    case 'FOUND':
      return { hold: found.hold, repeated: false };
    case 'BUSY':
      return 'UNDECIDED';
    case 'FREE':
      throw sent.outcome === 'UNAVAILABLE'
        ? new Problem(
            'WORKFLOW_UNAVAILABLE',
            'Temporal can not be reached. Nothing is held and nothing will be.',
            { retryAfterSeconds: 2 },
          )
        : new Problem('CHECKOUT_TIMED_OUT', 'The claim was not decided within 3.5 seconds.');
  }
}

function ifAway<T>(instead: T): (error: unknown) => T {
  return (error) => {
    if (error instanceof DatabaseFault) return instead;
    throw error;
  };
}
