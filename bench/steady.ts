import { until } from '../cli/servers/until.js';
import type { Kind } from './arms/arm.js';
import { violationsOf } from './ledger.js';
import type { Visit } from './load/plan.js';
import { atLeast, interleave } from './measure.js';
import type { Arm, Options, Run } from './measure.js';
import {
  busyOrSlow,
  timedOut,
  decisionTimes,
  latencies,
  warmUp,
  withShop,
  wrongAnswers,
} from './shop.js';
import type { Shop } from './shop.js';

const clients = 16;
/** An ordinary day: the buyers want different things. */
const products = Array.from({ length: 16 }, (_, index) => `P${index + 1}`);
const confirmedWithinMs = 60_000;

/**
 * Clients that hold one unit and pay for it, over and over; a pair ends with the webhook's 200. All
 * must be CONFIRMED afterwards, and how long that took is told: pairs that only pile up are no speed.
 * Against what HTTP and Temporal alone cost.
 */
export async function steady(options: Options): Promise<Run> {
  const { rounds, seconds } = options;
  const measured = await interleave([arm('ours', options), arm('floor', options)], options);
  return {
    bench: 'steady',
    settings: { clients, products: products.length, rounds, seconds },
    ...measured,
    judged: [
      atLeast(0.8, {
        bench: 'steady',
        metric: 'holds and payments a second',
        ours: measured.samples['ours']!,
        baseline: measured.samples['floor']!,
        baselineName: 'floor',
      }),
    ],
    left_out: [],
  };
}

function arm(kind: Kind, options: Options): Arm {
  const stock = Object.fromEntries(products.map((sku) => [sku, 1_000_000]));
  return {
    name: kind,
    run: (seconds) =>
      withShop(kind, stock, options, async (shop) => {
        const warm = paidOf((await warmUp(shop, { pays: true })).visits).length;
        await until(async () => (await confirmedIn(shop)) >= warm, confirmedWithinMs);
        const { result, cpuSeconds } = await shop.measured(async () => {
          const startedMs = Date.now();
          const loaded = await shop.generator.run({
            ...shop.target,
            name: 'buyer',
            arrivals: { kind: 'closed', clients, seconds },
            skus: products,
            pays: true,
            patienceMs: 10_000,
          });
          const endedMs = Date.now();
          const paid = loaded.visits.filter(({ end }) => end === 'PAID').length;
          const all = async () => (await confirmedIn(shop)) >= warm + paid;
          const confirmed = await until(all, confirmedWithinMs);
          const confirmedAfterMs = Date.now() - endedMs;
          return { loaded, paid, confirmed, confirmedAfterMs, tookMs: endedMs - startedMs };
        });
        const { loaded, paid, confirmed, confirmedAfterMs, tookMs } = result;
        const { visits } = loaded;
        const lost = visits.length - paid;
        return {
          rate: (paid * 1000) / tookMs,
          numbers: {
            'all CONFIRMED after the last pair, ms': confirmedAfterMs,
            ...timedOut([loaded]),
            ...latencies('held', decisionTimes({ ...loaded, visits: paidOf(visits) }, 'HELD')),
            ...latencies('webhook', webhookTimes(visits)),
          },
          cpuSeconds,
          violations: [
            ...wrongAnswers(loaded, busyOrSlow),
            ...(lost > 0 ? [`${lost} of ${visits.length} pairs did not end`] : []),
            ...(confirmed ? [] : [`not all of ${paid} paid holds became CONFIRMED`]),
            ...(kind === 'floor' ? [] : await violationsOf(shop, visits, ['CONFIRMED'])),
          ],
        };
      }),
  };
}

/** As if they had ended when they were held. */
function paidOf(visits: Visit[]): Visit[] {
  return visits.filter(({ end }) => end === 'PAID').map((visit) => ({ ...visit, end: 'HELD' }));
}

export function webhookTimes(visits: Visit[]): number[] {
  return visits.filter(({ end }) => end === 'PAID').map(({ payMs, paidMs }) => paidMs! - payMs!);
}

async function confirmedIn({ running, sql }: Shop): Promise<number> {
  if (running.kind === 'floor') return (await running.counts()).confirms;
  const [row] = await sql<{ confirmed: number }>(
    `select count(*)::int as confirmed from tahan.holds where status = 'CONFIRMED'`,
  );
  return row!.confirmed;
}
