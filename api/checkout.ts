import type { Hold } from '../db/readHold.js';
import { readCheckout } from '../db/readCheckout.js';
import { adoptionRequest, workflowId } from '../workflows/contract.js';
import type { HoldRequest } from '../workflows/contract.js';
import type { Api } from './app.js';
import { askForClaim, claimWithinMs } from './askForClaim.js';
import { canonical } from './canonical.js';
import type { Checkout } from './canonical.js';
import { answerWithinMs } from './clock.js';
import { holdTooLong, keyReused, noProduct, refusalProblem } from './refusals.js';
import type { Call, Reply } from './route.js';
import type { CheckoutBody } from './schemas.js';
import { showHold, showOrder } from './show.js';

/** First reads while Postgres is away: a 503 comes in under 2 s. */
const firstReadMs = 1500;

/**
 * POST /v1/holds and /v1/orders. The API never takes a unit: it reads once, asks the hold's
 * workflow to claim, and shows what Postgres then says. Answers by 5 s whatever is down:
 * 201 held, 200 the key was used before, 409 refused, 503 nothing is held and nothing will be,
 * 202 not known yet, and repeating the key finds out.
 */
export async function checkout(
  call: Call<unknown, CheckoutBody>,
  api: Api,
  kind: Checkout['kind'],
): Promise<Reply> {
  const salt = await api.salt(call.clock.left(answerWithinMs, firstReadMs));
  const wanted = canonical(kind, call.body, call.idempotencyKey!, salt);
  const seen = await readCheckout(
    api.db,
    wanted.holdId,
    wanted.lines && wanted.lines.map((line) => line.sku),
    wanted.buyerId,
    call.clock.left(answerWithinMs, firstReadMs),
  );
  // Before any wait: what passed since the arrival is counted against the claim.
  const claimDeadline = new Date(
    Date.parse(seen.now) + claimWithinMs - Math.ceil(call.clock.passedMs),
  ).toISOString();
  if (seen.hold !== null) {
    if (seen.hold.status === 'HELD') adopt(seen.hold, wanted, api);
    return replay(seen.hold, wanted);
  }
  refuseUnknown(wanted, seen.products);

  const request: HoldRequest = {
    holdId: wanted.holdId,
    buyerId: wanted.buyerId,
    idempotencyKey: wanted.idempotencyKey,
    requestHash: wanted.requestHash,
    lines: wanted.lines,
    holdSeconds: wanted.holdSeconds,
    claimDeadline,
    order: kind === 'order',
    metadata: wanted.metadata,
    indexed: api.holds.indexed,
  };
  const { decision, joined } = await api.claims.decide(wanted, () =>
    askForClaim(request, wanted, api, call.clock),
  );
  if (decision === 'UNDECIDED') return undecided(wanted);
  if (joined || decision.repeated) return replay(decision.hold, wanted);
  return show(decision.hold, wanted, 201);
}

function refuseUnknown(
  { lines, holdSeconds }: Checkout,
  products: { sku: string; maxHoldSeconds: number }[],
): void {
  const known = new Set(products.map((product) => product.sku));
  const unknown = lines?.find(({ sku }) => !known.has(sku));
  if (unknown !== undefined) throw noProduct(unknown.sku);
  const most = Math.min(...products.map((product) => product.maxHoldSeconds));
  if (holdSeconds !== null && holdSeconds > most) throw holdTooLong(most);
}

/** The key was used before: the hold in its present state, or the same refusal again (R08). */
function replay(hold: Hold, wanted: Checkout): Reply {
  const reply = show(hold, wanted, 200);
  return { ...reply, headers: { ...reply.headers, ...replayed } };
}

const replayed = { 'idempotent-replayed': 'true' };

/** Repeats of keys can come in floods, and an adoption is needed once: others wait for the next repeat. */
const adoptionsAtOnce = 20;

/**
 * Starts the workflow of a HELD hold in the background: a no-op while it lives, and the adoption of
 * one whose workflow was terminated. The next message would do the same, so a failure may pass.
 */
function adopt(hold: Hold, { idempotencyKey, requestHash }: Checkout, api: Api): void {
  const { adopting, holds, logger, send } = api;
  if (hold.requestHash !== requestHash || adopting.has(hold.id)) return;
  if (adopting.size >= adoptionsAtOnce) return;
  adopting.add(hold.id);
  const row = { ...hold, holdId: hold.id, idempotencyKey };
  const request = adoptionRequest(row, { indexed: holds.indexed });
  void send(holds, request, { kind: 'start' }, { withinMs: answerWithinMs })
    .then(({ outcome }) => {
      if (outcome !== 'SENT') logger.warn({ outcome, hold: hold.id }, 'not adopted');
    })
    .catch((error: unknown) => logger.warn({ err: error, hold: hold.id }, 'not adopted'))
    .finally(() => adopting.delete(hold.id));
}

function show(hold: Hold, { kind, requestHash }: Checkout, status: 200 | 201): Reply {
  if (hold.requestHash !== requestHash) throw keyReused();
  if (hold.refusal !== null) {
    const problem = refusalProblem(hold.refusal, hold.serverTime);
    if (status === 200) Object.assign(problem.headers, replayed);
    throw problem;
  }
  if (kind === 'order' && hold.order !== null) {
    const location = `/v1/orders/${hold.order.orderNumber}`;
    return { status, body: showOrder(hold, hold.order), headers: { location } };
  }
  return { status, body: showHold(hold), headers: { location: `/v1/holds/${hold.id}` } };
}

function undecided({ holdId }: Checkout): Reply {
  const detail =
    'It is not known yet whether the units are held. Repeat the POST with the same Idempotency-Key: that is always safe, and answers what became of it.';
  return {
    status: 202,
    body: { id: holdId, status: 'CLAIMING', detail, workflow_id: workflowId(holdId) },
    headers: { location: `/v1/holds/${holdId}`, 'retry-after': '1' },
  };
}
