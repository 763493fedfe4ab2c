import { createHash } from 'node:crypto';
import { v5 as uuidV5 } from 'uuid';
import { readHold } from '../db/readHold.js';
import type { Hold } from '../db/readHold.js';
import { readAfterDeadline, readCheckout } from '../db/readCheckout.js';
import { DatabaseFault } from '../db/faults.js';
import type { Line } from '../db/values.js';
import { adoptionRequest, workflowId } from '../workflows/contract.js';
import type { Answers, HoldRequest, Sent } from '../workflows/contract.js';
import type { Api } from './app.js';
import { answerWithinMs } from './clock.js';
import type { Clock } from './clock.js';
import { Problem } from './errors.js';
import type { Call, Reply } from './route.js';
import { maxQuantity } from './schemas.js';
import type { CheckoutBody } from './schemas.js';
import { refusalProblem, showHold, showOrder } from './show.js';

/** After the arrival, by the database's clock: a claim that gets its locks later takes nothing. */
const claimWithinMs = 3500;
/** Until then the claim's answer is waited for; an answer given in the last moment still arrives. */
const listenUntilMs = 3800;
/** First reads while Postgres is away: a 503 comes in under 2 s. */
const firstReadMs = 1500;

export interface Checkout {
  kind: 'hold' | 'order';
  holdId: string;
  idempotencyKey: string;
  requestHash: string;
  buyerId: string;
  lines: Line[];
  holdSeconds: number | null;
  metadata: Record<string, string>;
}

/** What the claim came to; a refusal is thrown as a problem. */
export type Decision =
  /** `repeated`: it was there before this request. */
  { hold: Hold; repeated: boolean } | 'UNDECIDED';

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
  const wanted = await understand(call, api, kind);
  const seen = await readCheckout(
    api.db,
    wanted.holdId,
    wanted.lines.map((line) => line.sku),
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
    claim(request, wanted, api, call.clock),
  );
  if (decision === 'UNDECIDED') return undecided(wanted);
  if (joined || decision.repeated) return replay(decision.hold, wanted);
  return show(decision.hold, wanted, 201);
}

/** The request in its one canonical form: order of fields and white space do not matter (B19). */
async function understand(
  { body, clock, idempotencyKey }: Call<unknown, CheckoutBody>,
  api: Api,
  kind: Checkout['kind'],
): Promise<Checkout> {
  const key = idempotencyKey!;
  const lines = mergeLines(body.lines);
  const metadata = Object.entries(body.metadata ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const holdSeconds = body.hold_seconds ?? null;
  const canonical = [
    kind,
    body.buyer_id,
    lines.map(({ sku, quantity }) => [sku, quantity]),
    holdSeconds,
    metadata,
  ];
  const salt = await api.salt(clock.left(answerWithinMs, firstReadMs));
  return {
    kind,
    // Of the pair as JSON: ("ab", "c") and ("a", "bc") must not meet.
    holdId: uuidV5(JSON.stringify([body.buyer_id, key]), salt),
    idempotencyKey: key,
    requestHash: createHash('sha256').update(JSON.stringify(canonical)).digest('hex'),
    buyerId: body.buyer_id,
    lines,
    holdSeconds,
    metadata: Object.fromEntries(metadata),
  };
}

/** Stock and limits belong to the product, not to the line (B04); sorted as Postgres sorts. */
function mergeLines(lines: Line[]): Line[] {
  const sums = new Map<string, number>();
  for (const { sku, quantity } of lines) sums.set(sku, (sums.get(sku) ?? 0) + quantity);
  for (const [sku, quantity] of sums) {
    if (quantity > maxQuantity) {
      throw new Problem(
        'INVALID_QUANTITY',
        `The lines of ${sku} add up to ${quantity}; at most 10,000 of one product fit a checkout.`,
      );
    }
  }
  return [...sums]
    .map(([sku, quantity]) => ({ sku, quantity }))
    .sort((a, b) => (a.sku < b.sku ? -1 : 1));
}

function refuseUnknown(
  { lines, holdSeconds }: Checkout,
  products: { sku: string; maxHoldSeconds: number }[],
): void {
  const known = new Set(products.map((product) => product.sku));
  const unknown = lines.find(({ sku }) => !known.has(sku));
  if (unknown !== undefined) throw noProduct(unknown.sku);
  const most = Math.min(...products.map((product) => product.maxHoldSeconds));
  if (holdSeconds !== null && holdSeconds > most) throw holdTooLong(most);
}

/** Asks the workflow, and then Postgres: what is shown is what was committed. */
async function claim(
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
    case 'PRODUCT_INACTIVE':
    case 'MIXED_CURRENCIES':
      throw refusalProblem(answer);
  }
}

/**
 * No answer, or none to rely on: UNAVAILABLE too may have reached Temporal. Once the claim's
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
    const problem = refusalProblem(hold.refusal);
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

function keyReused(): Problem {
  return new Problem(
    'IDEMPOTENCY_KEY_REUSED',
    'This buyer used this Idempotency-Key for a request with another body.',
  );
}

export function noProduct(sku: string): Problem {
  return new Problem('PRODUCT_NOT_FOUND', `There is no product ${sku}.`, { members: { sku } });
}

function holdTooLong(maxHoldSeconds: number): Problem {
  return new Problem(
    'INVALID_HOLD_SECONDS',
    `hold_seconds may be at most ${maxHoldSeconds} for these products.`,
    { members: { max_hold_seconds: maxHoldSeconds } },
  );
}
