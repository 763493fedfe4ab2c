import type { Hold } from '../db/readHold.js';
import type { Line } from '../db/values.js';
import { adoptionRequest, workflowId } from '../workflows/contract.js';
import type { HoldRequest } from '../workflows/contract.js';
import type { Api } from './app.js';
import { askForClaim, claimWithinMs } from './askForClaim.js';
import type { Decision } from './askForClaim.js';
import { canonical } from './canonical.js';
import type { Checkout } from './canonical.js';
import { answerWithinMs } from './clock.js';
import { Problem } from './errors.js';
import { refuseShort } from './gate.js';
import type { Passed } from './gate.js';
import type { Reading } from './readings.js';
import { holdTooLong, keyReused, noProduct, refusalProblem } from './refusals.js';
import type { Call, Reply } from './route.js';
import type { CheckoutBody } from './schemas.js';
import { showHold, showOrder } from './show.js';

/** First reads while Postgres is away: a 503 comes in under 2 s. */
const firstReadMs = 1500;

/**
 * POST /v1/holds and /v1/orders. The API never takes a unit: it reads once, together with the checkouts
 * that arrived meanwhile, passes the gate, asks the hold's workflow to claim, and shows what Postgres
 * then says. Answers by 5 s whatever is down: 201 held, 200 the key was used before, 409 refused, 503
 * nothing is held and nothing will be, 202 not known yet, and repeating the key finds out.
 */
export async function checkout(
  call: Call<unknown, CheckoutBody>,
  api: Api,
  kind: Checkout['kind'],
): Promise<Reply> {
  const salt = await api.salt(call.clock.left(answerWithinMs, firstReadMs));
  const wanted = canonical(kind, call.body, call.idempotencyKey!, salt);
  const reading = await api.readings.read(wanted, call.clock.left(answerWithinMs, firstReadMs));
  // Before any wait: what passed since the arrival is counted against the claim.
  const claimDeadline = new Date(
    Date.parse(reading.now) + claimWithinMs - Math.ceil(call.clock.passedMs),
  ).toISOString();
  const hold = reading.holds.get(wanted.holdId);
  if (hold !== undefined) {
    if (hold.status === 'HELD') adopt(hold, wanted, api);
    return replay(hold, wanted);
  }
  refuseUnknown(wanted, reading);

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
    claimBehindTheGate(request, wanted, reading, call, api),
  );
  if (decision === 'UNDECIDED') return undecided(wanted);
  if (joined || decision.repeated) return replay(decision.hold, wanted);
  return show(decision.hold, wanted, 201);
}

/** The gate says no without a workflow, and nothing is kept of it; whatever passes is decided by its claim. */
async function claimBehindTheGate(
  request: HoldRequest,
  wanted: Checkout,
  reading: Reading,
  { clock }: Call,
  api: Api,
): Promise<Decision> {
  const lines = countedLines(wanted, reading);
  refuseBuyer(wanted, lines, reading);
  refuseShort(lines, reading);
  let passed: Passed;
  try {
    passed = await api.gate.pass(lines, reading, clock);
  } catch (refusal) {
    if (!(refusal instanceof Problem) || refusal.code !== 'INSUFFICIENT_STOCK') throw refusal;
    // While it waited, an earlier attempt with its key may have won the units, at another process.
    const own = { holdId: wanted.holdId, buyerId: null, lines: [] };
    const { holds } = await api.readings.read(own, clock.left(answerWithinMs, firstReadMs));
    const hold = holds.get(wanted.holdId);
    if (hold === undefined) throw refusal;
    return { hold, repeated: true };
  }
  let decided = false;
  try {
    const decision = await askForClaim(request, wanted, api, clock);
    decided = decision !== 'UNDECIDED';
    return decision;
  } catch (error) {
    decided = error instanceof Problem && error.status !== 503;
    throw error;
  } finally {
    passed.ended(decided);
  }
}

/** What is wanted of whom; none where the claim refuses for a reason that comes before stock and limits. */
function countedLines(checkout: Checkout, reading: Reading): Line[] {
  const wanted = wantedLines(checkout, reading);
  const found = wanted.map(({ sku }) => reading.products.get(sku));
  const refused =
    found.some((product) => product?.active === false) ||
    (checkout.kind === 'order' && new Set(found.map((product) => product?.currency)).size > 1);
  return refused ? [] : wanted;
}

/** Limits per buyer, from the same read (R10): checked before the stock, as the claim does. */
function refuseBuyer({ buyerId }: Checkout, lines: Line[], reading: Reading): void {
  const refusal = lines.length > 0 && reading.refused.get(buyerId);
  if (refusal) throw refusalProblem(refusal);
  for (const { sku, quantity } of lines) {
    const limit = reading.products.get(sku)?.perBuyerLimit ?? null;
    if (limit !== null && reading.bought(buyerId, sku) + quantity > limit)
      throw refusalProblem({ outcome: 'BUYER_LIMIT', sku, limit });
  }
}

/** What an order without lines is of: the cart, as it was read. */
function wantedLines({ buyerId, lines }: Checkout, { carts }: Reading): Line[] {
  return lines ?? carts.get(buyerId) ?? [];
}

function refuseUnknown(checkout: Checkout, reading: Reading): void {
  const { lines, holdSeconds } = checkout;
  const { products } = reading;
  const unknown = lines?.find(({ sku }) => !products.has(sku));
  if (unknown !== undefined) throw noProduct(unknown.sku);
  const most = Math.min(
    ...wantedLines(checkout, reading).map(({ sku }) => products.get(sku)!.maxHoldSeconds),
  );
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
