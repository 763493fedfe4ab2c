import { randomBytes, randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Http } from '../../cli/http.js';
import type { Book } from '../../cli/sandbox/book.js';
import { dice } from '../../cli/sandbox/behaviour.js';
import { startSandbox } from '../../cli/sandbox/sandbox.js';
import type { Sandbox } from '../../cli/sandbox/sandbox.js';
import { pickPorts } from '../../cli/servers/ports.js';
import { openDatabase } from '../../db/database.js';
import { addKey, newKey } from '../../db/keys.js';
import { judge } from './judge.js';
import type { Verdict } from './judge.js';
import { plan, policies, productCount } from './plan.js';
import type { PlannedHold } from './plan.js';
import { Mortal } from './processes.js';
import { quiet } from './quiet.js';

export interface Run {
  /** A migrated database of this run's own, as its owner. */
  databaseUrl: string;
  temporalAddress: string;
  bundlePath: string;
  payments: number;
  /** Of the worker, and as many of the API: the last one of each comes when all webhooks are over. */
  kills: number;
  seed: number;
  /** So long it may take until nothing moves any more. */
  patienceMs: number;
  say?: (line: string) => void;
}

export interface Played extends Verdict {
  /** The provider's own book. */
  book: Book;
  holds: number;
  /** Calls to the provider about refunds, and how many of them executed and then failed. */
  calls: number;
  executedThenFailed: number;
  kills: number;
  seconds: number;
  seed: number;
}

/**
 * Payments around the deadline of their holds (G8), through a provider that executes one refund in
 * five without saying so and forgets every key at once, while API and worker are killed. Real
 * processes, Postgres and Temporal. The holds end together because each is asked for with fewer
 * seconds than the one before: no clock is moved, and no row written by the test.
 */
export async function play(run: Run): Promise<Played> {
  const began = performance.now();
  const roll = dice(run.seed);
  const say = run.say ?? (() => undefined);
  const world = await open(run);
  try {
    const holds = plan(run.payments, roll);
    const skus = await products(world, holds);
    const { deadline, names } = await claimAll(world, holds, skus, say);
    // A part of the late ones finds nothing left: not a unit below this is given to them.
    await Promise.all(skus.map((sku, index) => keepBack(world, sku, countOf(holds, index))));
    await payAll(world, holds, names, deadline);
    say(
      `${run.payments} payments are on their way, in ${Math.round((deadline - Date.now()) / 1000)} s`,
    );
    await sleep(Math.max(0, deadline - 1000 - Date.now()));
    await Promise.all(
      [world.api, world.worker].map((process) => killAtRandom(process, run.kills - 1, roll)),
    );
    await quiet(world, run);
    say('nothing moves any more');
    const verdict = await judge(run.databaseUrl, world.sandbox.book);
    return {
      ...verdict,
      book: world.sandbox.book,
      holds: holds.length,
      calls: world.calls(),
      executedThenFailed: world.sandbox.book.counts.faults,
      kills: world.api.kills + world.worker.kills,
      seconds: Math.round((performance.now() - began) / 1000),
      seed: run.seed,
    };
  } finally {
    await world.close();
  }
}

/** What makes a run worth nothing, whatever came out: all of it ended in one and the same way. */
export function vacuous(
  {
    payments,
    confirmed,
    refunded,
    executedThenFailed,
  }: Pick<Played, 'payments' | 'confirmed' | 'refunded' | 'executedThenFailed'>,
  share = 0.1,
): string[] {
  const few = (found: number, of: number, what: string) =>
    found < of * share ? [`only ${found} of ${of} ${what}`] : [];
  return [
    ...few(confirmed, payments, 'confirmed their hold'),
    ...few(refunded, payments, 'were refunded'),
    // One in five, thrown with dice.
    ...few(executedThenFailed, refunded / 2, 'refunds were executed without an answer'),
  ];
}

export interface World {
  prefix: string;
  api: Mortal;
  worker: Mortal;
  sandbox: Sandbox;
  http: Http;
  shopKey: string;
  operatorKey: string;
  calls(): number;
  close(): Promise<void>;
}

async function open(run: Run): Promise<World> {
  const ports = await pickPorts({ api: 0 });
  const url = `http://127.0.0.1:${ports.api.number}`;
  const [secret, refundSecret] = [newSecret(), newSecret()];
  const [shopKey, operatorKey] = [newKey(), newKey()];
  const db = openDatabase({ url: run.databaseUrl });
  await addKey(db, 'shop', 'web', shopKey);
  await addKey(db, 'operator', 'ann', operatorKey);
  await db.close();
  let calls = 0;
  const sandbox = await startSandbox({
    secret,
    refundSecret,
    deliverTo: url,
    seed: run.seed,
    behaviour: {
      // Nothing but tahan's own care stands between a payment and its second refund.
      refunds: { execute_then_fail: 0.2, forget_keys_after_ms: 0, overdraw: true },
      // It tells of no refund: the look-up alone has to find what a lost answer has done.
      webhooks: { refunded: false, first_pause_ms: 400, span_ms: run.patienceMs },
    },
    log: (fact) => void (calls += 'refund' in fact ? 1 : 0),
  });
  const prefix = `pay${randomBytes(4).toString('hex')}-`;
  const common = {
    DATABASE_URL: run.databaseUrl,
    TEMPORAL_ADDRESS: run.temporalAddress,
    TAHAN_TASK_QUEUE_PREFIX: prefix,
  };
  const api = new Mortal('api/main.js', {
    ...common,
    PORT: String(ports.api.number),
    TAHAN_WEBHOOK_SECRETS: secret,
    TAHAN_LOG_LEVEL: 'error',
  });
  const worker = new Mortal('worker/main.js', {
    ...common,
    TAHAN_WORKFLOW_BUNDLE: run.bundlePath,
    TAHAN_REFUND_URL: sandbox.url,
    TAHAN_REFUND_SECRET: refundSecret,
  });
  const close = async () => {
    await Promise.all([api.kill(), worker.kill()]);
    await sandbox.close();
  };
  try {
    await Promise.all([api.start(), worker.start()]);
  } catch (error) {
    await close();
    throw error;
  }
  const http = new Http(url, endless());
  return { prefix, api, worker, sandbox, http, shopKey, operatorKey, calls: () => calls, close };
}

/** Each with one unit for each of its holds, half of them with the other policy; the last to calibrate. */
function products({ http, operatorKey: key }: World, holds: PlannedHold[]): Promise<string[]> {
  return Promise.all(
    Array.from({ length: productCount + 1 }, async (_, index) => {
      const path = `/v1/products/P${index}`;
      const late_payment = policies[index % policies.length];
      const price = { amount_minor: 2500, currency: 'EUR' };
      await http.must('PUT', path, { key, body: { late_payment, price } });
      await http.must('PUT', `${path}/bins/main`, { key, body: {} });
      await http.must('POST', `${path}/bins/main/restock`, {
        key,
        headers: { 'idempotency-key': randomUUID() },
        body: { quantity: countOf(holds, index), reason: 'opening' },
      });
      return `P${index}`;
    }),
  );
}

function countOf(holds: PlannedHold[], product: number): number {
  return product === productCount
    ? calibration
    : holds.filter((hold) => hold.product === product).length;
}

async function keepBack({ http, operatorKey: key }: World, sku: string, units: number) {
  const body = { safety_stock: Math.ceil(units / 3), reason: 'not for late payments' };
  await http.must('PUT', `/v1/products/${sku}/bins/main`, { key, body });
}

/** The id of each hold, or the number of its order. */
type Names = Map<PlannedHold, string>;

/** Holds that nobody pays for, to learn how fast this machine claims. */
const calibration = 24;
const atOnce = 8;

/** Makes all holds, and answers with the moment that they and the payments are arranged around. */
async function claimAll(
  world: World,
  holds: PlannedHold[],
  skus: string[],
  say: (line: string) => void,
): Promise<{ deadline: number; names: Names }> {
  const names: Names = new Map();
  const few = () =>
    inLanes(Array.from({ length: calibration / 2 }), () =>
      claim(world, skus[productCount]!, false, 1),
    );
  await few(); // a worker's first claims load the workflows
  const began = performance.now();
  await few();
  const eachMs = (performance.now() - began) / (calibration / 2);
  const deadline = Date.now() + 8000 + eachMs * holds.length * 1.8;
  say(`${holds.length} holds, ${Math.round(1000 / eachMs)} a second`);
  await inLanes(holds, async (hold) => {
    // Whole seconds: so the ends lie within half a second of where they are planned.
    const seconds = Math.round((deadline + hold.endsAt - Date.now()) / 1000);
    if (seconds < 3)
      throw new Error('This machine became too slow: the holds are not made in time');
    names.set(hold, await claim(world, skus[hold.product]!, hold.order, seconds));
  });
  return { deadline, names };
}

async function claim({ http, shopKey }: World, sku: string, order: boolean, seconds: number) {
  const path = order ? '/v1/orders' : '/v1/holds';
  const made = await http.must<{ id: string; order_number?: string }>('POST', path, {
    key: shopKey,
    headers: { 'idempotency-key': randomUUID() },
    body: { buyer_id: randomUUID(), lines: [{ sku, quantity: 1 }], hold_seconds: seconds },
  });
  return order ? made.order_number! : made.id;
}

/** The provider takes the money now, and sends each webhook at its time. */
async function payAll(
  { sandbox }: World,
  holds: PlannedHold[],
  names: Names,
  deadline: number,
): Promise<void> {
  const provider = new Http(sandbox.url, endless());
  const asked = holds.flatMap((hold) =>
    hold.payments.map(({ ask, sentAt }) => ({
      ...ask,
      ...(hold.order ? { order_number: names.get(hold) } : { hold_id: names.get(hold) }),
      at: new Date(deadline + sentAt).toISOString(),
    })),
  );
  await inLanes(asked, (body) => provider.must('POST', '/charges', { body }));
}

/** Each kill comes up to 5 s after the process was ready again; the first one around the deadline. */
async function killAtRandom(process: Mortal, kills: number, roll: () => number): Promise<void> {
  for (let killed = 0; killed < kills; killed += 1) {
    await sleep(roll() * (killed === 0 ? 2500 : 5000));
    await process.killAndStart();
  }
}

/** Nobody stops these calls, and many listen. */
function endless(): AbortSignal {
  const { signal } = new AbortController();
  setMaxListeners(0, signal);
  return signal;
}

function newSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

async function inLanes<T>(items: T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const queue = items.values();
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (const item of queue) await work(item);
    }),
  );
}
