import { putBin } from '../db/bin.js';
import { openDatabase } from '../db/database.js';
import { putProduct } from '../db/product.js';
import { restock } from '../db/restock.js';
import { startArm } from './arms/start.js';
import type { Kind, Running } from './arms/arm.js';
import { onFreshDatabase } from './database.js';
import { startGenerator } from './load/generator.js';
import type { Generator } from './load/generator.js';
import type { Loaded, Plan } from './load/plan.js';
import type { Sql } from './ledger.js';
import { percentile } from './measure.js';
import type { Options } from './measure.js';
import { cpuSecondsOf, spentBetween } from './usage.js';

export const warmUpSku = 'WARM';

/** An arm that runs, on fresh data, with a generator beside it. */
export interface Shop {
  running: Running;
  generator: Generator;
  /** The database of the arm; of the floor an empty one. */
  url: string;
  sql: Sql;
  /** What a plan needs to know of the arm. */
  target: Pick<Plan, 'port' | 'key' | 'secret'>;
  /** Runs what is measured, and tells what each process spent on it. */
  measured<T>(work: () => Promise<T>): Promise<{ result: T; cpuSeconds: Record<string, number> }>;
}

/** @param stock units by product; the floor needs to know those of HOT only */
export function withShop<T>(
  kind: Kind,
  stock: Record<string, number>,
  options: Options,
  work: (shop: Shop) => Promise<T>,
): Promise<T> {
  return onFreshDatabase(
    async (url, sql) => {
      if (kind !== 'floor') await putStock(url, { ...stock, [warmUpSku]: 1_000_000 });
      const running = await startArm(kind, url, stock['HOT'] ?? 0, options);
      const generator = startGenerator();
      try {
        const { port, key, secret, pids } = running;
        const all = { ...pids, generator: generator.pid };
        return await work({
          ...{ running, generator, url, sql, target: { port, key, secret } },
          async measured(inner) {
            const before = cpuSecondsOf(all);
            const result = await inner();
            return { result, cpuSeconds: spentBetween(before, cpuSecondsOf(all)) };
          },
        });
      } finally {
        await generator.close();
        await running.stop();
      }
    },
    { migrated: kind !== 'floor' },
  );
}

async function putStock(url: string, stock: Record<string, number>): Promise<void> {
  const db = openDatabase({ url });
  const by = { actor: 'bench', reason: 'bench' };
  try {
    for (const [sku, quantity] of Object.entries(stock)) {
      await putProduct(db, sku, { maxHoldSeconds: 86_400 }, by);
      await putBin(db, { sku, code: 'b1' }, by);
      if (quantity === 0) continue;
      const change = { sku, bin: 'b1', quantity, requestId: 'stock', reference: null, ...by };
      await restock(db, change);
    }
  } finally {
    await db.close();
  }
}

/** The first seconds are the compiler's. */
export function warmUp({ generator, target }: Shop, also: Partial<Plan> = {}): Promise<Loaded> {
  return generator.run({
    ...target,
    name: 'warm',
    arrivals: { kind: 'closed', clients: 8, seconds: 3 },
    skus: [warmUpSku],
    patienceMs: 10_000,
    ...also,
  });
}

/** Latencies from the moment at which the visit was meant to begin, with all repeats. */
export function latencies(what: string, ms: number[]): Record<string, number> {
  if (ms.length === 0) return {};
  return Object.fromEntries(
    [50, 99, 100].map((percent) => [
      `${what}, ${percent === 100 ? 'slowest' : `p${percent}`}, ms`,
      percentile(ms, percent),
    ]),
  );
}

export function decisionTimes({ visits }: Loaded, end: 'HELD' | 'REFUSED'): number[] {
  return visits
    .filter((visit) => visit.end === end)
    .map(({ intendedMs, decidedMs }) => decidedMs - intendedMs);
}

/** A sale that is busy says so, and the buyer comes again. */
const busy = ['503 SALE_BUSY'];
/** Nothing is held: slow, and seen in the latencies, but no lie. */
export const busyOrSlow = [...busy, '503 CHECKOUT_TIMED_OUT'];

/** Answers that no buyer may get: any other 5xx, none at all, a refused payment. */
export function wrongAnswers({ answers, visits }: Loaded, allowed = busy): string[] {
  const wrong = Object.entries(answers)
    .filter(([name]) => name === 'no answer' || (/^5/.test(name) && !allowed.includes(name)))
    .map(([name, count]) => `${count} times ${name}`);
  const failed = visits.filter(({ end }) => end === 'FAILED').length;
  return failed > 0 ? [...wrong, `${failed} visits failed: ${JSON.stringify(answers)}`] : wrong;
}

export function timedOut(loads: Loaded[]): Record<string, number> {
  const count = ({ answers }: Loaded) => answers['503 CHECKOUT_TIMED_OUT'] ?? 0;
  return { 'CHECKOUT_TIMED_OUT, answers': loads.reduce((sum, each) => sum + count(each), 0) };
}
