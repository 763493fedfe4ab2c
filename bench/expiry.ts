import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../cli/servers/until.js';
import type { Kind } from './arms/arm.js';
import { violationsOf } from './ledger.js';
import type { Loaded, Plan, Visit } from './load/plan.js';
import { atLeast, atMost, interleave, percentile, within } from './measure.js';
import type { Arm, Options, Run } from './measure.js';
import { busyOrSlow, timedOut, warmUp, withShop, wrongAnswers } from './shop.js';
import type { Shop } from './shop.js';

/** Products of one unit, which end with all the others and are wanted again at that moment. */
const probes = Array.from({ length: 20 }, (_, index) => `WANTED-${index + 1}`);
const many = 'STORM';
/** Bought by as many at once in the calm before: a burst costs something without any end, too. */
const calmProbes = probes.map((_, index) => `CALM-${index + 1}`);
/** Meanwhile other products sell, calmly. */
const others = { sku: 'OTHER', perSecond: 5, idleSeconds: 10 };
/** So many holds a second are made for sure; the end is as far away as that needs. */
const madePerSecond = 20;
/** They have turns, at least 10 a second. */
const drainedWithinMs = (holds: number) => 60_000 + holds * 100;

/**
 * Many holds that end in the same second. Their units can be sold again at once; claims and payments
 * of other products don't suffer; and the holds reach their end at the pace that Temporal allows.
 */
export async function expiry(options: Options): Promise<Run> {
  const { holds, rounds } = options;
  const measured = await interleave([arm('ours', options), arm('floor', options)], options);
  const { samples, numbers } = measured;
  const of = (what: string) => numbers[`ours: ${what}`]!;
  const calm = (what: string) =>
    atMost(3, {
      bench: 'expiry',
      metric: `ms of ${what} of other products, p99, while the holds end`,
      ours: of(`${what} meanwhile, p99, ms`),
      baseline: of(`${what} when idle, p99, ms`),
      baselineName: 'when idle',
    });
  return {
    bench: 'expiry',
    settings: {
      ...{ holds, probes: probes.length, others_per_second: others.perSecond, rounds },
      idle_seconds: others.idleSeconds,
    },
    ...measured,
    judged: [
      within(1000, {
        bench: 'expiry',
        metric: 'ms from the end to held by the next, p99',
        ours: of('held by the next after the end, p99, ms'),
      }),
      calm('claims'),
      calm('payments'),
      atLeast(0.8, {
        bench: 'expiry',
        metric: 'holds ended a second',
        ours: samples['ours']!,
        baseline: samples['floor']!,
        baselineName: 'floor',
      }),
    ],
    left_out: [],
  };
}

function arm(kind: Kind, options: Options): Arm {
  const { holds } = options;
  const ones = Object.fromEntries([...probes, ...calmProbes].map((sku) => [sku, 1]));
  const stock = { ...ones, [many]: holds, [others.sku]: 1_000_000 };
  return {
    name: kind,
    run: () =>
      withShop(kind, stock, options, async (shop) => {
        await warmUp(shop, { pays: true });
        const endsMs = Date.now() + (25 + holds / madePerSecond) * 1000;
        const [first, rest] = await make(shop, holds, endsMs);
        const calm = shop.generator.run(sales(shop, 'idle', others.idleSeconds));
        const burst = await shop.generator.run(
          wanted(
            shop,
            'burst',
            calmProbes,
            Array.from(calmProbes, () => Date.now() + 2000),
          ),
        );
        const idle = await calm;
        const leftMs = endsMs - Date.now();
        const late = leftMs < 2000 ? ['the holds were not made in time: try fewer'] : [];
        if (leftMs > 2000) await sleep(leftMs - 2000);

        const { result, cpuSeconds } = await shop.measured(async () => {
          const meanwhile = shop.generator.start(sales(shop, 'meanwhile', 3600));
          const again = shop.generator.run(wantedAgain(shop, first.visits));
          const ended = async () => (await drain(shop)).ended >= holds;
          const drained = await until(ended, drainedWithinMs(holds), 250);
          meanwhile.stop();
          return { drained, sold: await meanwhile.ended, again: await again };
        });
        const { ended, firstDueMs, lastMs } = await drain(shop);
        const waits = waitsOf(result.again.visits);
        const loads = [first, rest, burst, idle, result.sold, result.again];
        const visits = loads.flatMap((loaded) => loaded.visits);
        const unheld = [...first.visits, ...rest.visits].filter(({ end }) => end !== 'HELD').length;
        const lost = visits.filter(({ end }) => end !== 'HELD' && end !== 'PAID').length;
        return {
          rate: (ended * 1000) / (lastMs - firstDueMs),
          numbers: {
            'held by the next after the end, p99, ms': percentile(waits, 99),
            'held by the next after the end, p50, ms': percentile(waits, 50),
            'held by one of as many when idle, p99, ms': percentile(waitsOf(burst.visits), 99),
            ...sales99('when idle', idle.visits),
            ...sales99('meanwhile', result.sold.visits),
            ...timedOut(loads),
            'gave up, visits': lost,
            'last hold ended after the first end, ms': lastMs - firstDueMs,
          },
          cpuSeconds,
          violations: [
            ...late,
            ...loads.flatMap((each) => wrongAnswers(each, busyOrSlow)),
            ...(unheld > 0 ? [`${unheld} of the ${holds} holds were not made`] : []),
            ...(result.drained ? [] : [`${ended} of ${holds} holds have ended`]),
            ...(kind === 'floor'
              ? []
              : await violationsOf(shop, visits, ['HELD', 'CONFIRMED', 'EXPIRED'])),
          ],
        };
      }),
  };
}

/** The holds that end together: first one of each wanted product, then the many. */
async function make(
  { generator, target }: Shop,
  holds: number,
  endsMs: number,
): Promise<[Loaded, Loaded]> {
  const each = (name: string, skus: string[], count: number): Plan => ({
    ...target,
    name,
    arrivals: { kind: 'closed', clients: 16, count },
    skus,
    holds: { untilMs: endsMs },
    patienceMs: 10_000,
  });
  return [
    await generator.run(each('first', probes, probes.length)),
    await generator.run(each('many', [many], holds - probes.length)),
  ];
}

/** Each is asked for by its next buyer from the moment of its end on, every 100 ms until it is held. */
function wantedAgain(shop: Shop, first: Visit[]): Plan {
  // The answer's milliseconds are rounded.
  const ends = first.map(({ expiresMs }) => expiresMs! + 1);
  return wanted(shop, 'next', probes, ends);
}

function wanted({ target }: Shop, name: string, skus: string[], timesMs: number[]): Plan {
  const buyers = skus
    .map((sku, index) => ({ sku, atMs: timesMs[index]! }))
    .sort((a, b) => a.atMs - b.atMs);
  return {
    ...target,
    name,
    arrivals: { kind: 'at', timesMs: buyers.map(({ atMs }) => atMs) },
    skus: buyers.map(({ sku }) => sku),
    insistAfterMs: 100,
    patienceMs: 30_000,
  };
}

function sales({ target }: Shop, name: string, seconds: number): Plan {
  return {
    ...target,
    name,
    arrivals: { kind: 'open', perSecond: others.perSecond, count: others.perSecond * seconds },
    skus: [others.sku],
    pays: true,
    patienceMs: 30_000,
  };
}

function waitsOf(visits: Visit[]): number[] {
  return visits.map(({ end, intendedMs, decidedMs }) =>
    end === 'HELD' ? decidedMs - intendedMs : Infinity,
  );
}

function sales99(when: string, visits: Visit[]): Record<string, number> {
  const paid = visits.filter(({ end }) => end === 'PAID');
  return {
    [`claims ${when}, p99, ms`]: percentile(
      paid.map(({ intendedMs, decidedMs }) => decidedMs - intendedMs),
      99,
    ),
    [`payments ${when}, p99, ms`]: percentile(
      paid.map(({ payMs, paidMs }) => paidMs! - payMs!),
      99,
    ),
  };
}

/** How many of the holds have ended, when the first was to, and when the last did. */
async function drain({ running, sql }: Shop) {
  if (running.kind === 'floor') {
    const { expiries, firstDueMs, lastExpiredMs } = await running.counts();
    return { ended: expiries, firstDueMs, lastMs: lastExpiredMs };
  }
  const [row] = await sql<{ ended: number; first: number; last: number }>(`
    select count(*) filter (where h.status = 'EXPIRED')::int as ended,
      extract(epoch from min(h.expires_at))::float8 * 1000 as first,
      extract(epoch from max(h.closed_at))::float8 * 1000 as last
    from tahan.holds h where h.buyer_id ~ '^(first|many)-'`);
  return { ended: row!.ended, firstDueMs: row!.first, lastMs: row!.last };
}
