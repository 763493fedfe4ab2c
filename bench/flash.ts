import { skus } from './arms/standIn.js';
import type { Kind } from './arms/arm.js';
import { falselyRefused, freeOf, violationsOf } from './ledger.js';
import type { Loaded } from './load/plan.js';
import { atLeast, atMost, interleave, within } from './measure.js';
import type { Arm, Options, Round, Run } from './measure.js';
import {
  decisionTimes,
  latencies,
  timedOut,
  warmUp,
  warmUpSku,
  withShop,
  wrongAnswers,
} from './shop.js';
import type { Shop } from './shop.js';
import { shareTooLate } from './temporal.js';

/** Whoever is told 202 or 503 repeats after Retry-After (and up to 250 ms more) for so long. */
const patienceMs = 30_000;

/**
 * A flash sale (R14): so many buyers a second, whether or not the shop keeps up, for a few units of one
 * product. Ours against the same route without an engine, and the holds against what HTTP and
 * Temporal alone take for as many workflows under the same load.
 */
export async function flash(options: Options): Promise<Run> {
  const { buyers, rate, units, rounds } = options;
  const kinds: Kind[] = ['ours', 'no engine', 'floor'];
  const measured = await interleave(
    kinds.map((kind) => arm(kind, options)),
    options,
  );
  const { samples, numbers } = measured;
  const last = (kind: Kind) => numbers[`${kind}: last hold, ms`]!;
  return {
    bench: 'flash',
    settings: { buyers, rate, units, rounds, patience_seconds: patienceMs / 1000 },
    ...measured,
    judged: [
      atLeast(0.8, {
        bench: 'flash',
        metric: 'decisions a second',
        ours: samples['ours']!,
        baseline: samples['no engine']!,
        baselineName: 'no engine',
      }),
      atMost(1.4, {
        bench: 'flash',
        metric: 'ms to the last unit held',
        ours: last('ours'),
        baseline: last('floor'),
        baselineName: 'floor',
      }),
      within(0.01, {
        bench: 'flash',
        metric: 'share of CLAIM_TOO_LATE',
        ours: numbers['ours: CLAIM_TOO_LATE, share']!,
      }),
    ],
    left_out: [],
  };
}

/**
 * The same sale with clients that each come back as soon as they were answered: as fast as the shop
 * can, until every buyer is decided.
 */
export async function saturated(options: Options): Promise<Run> {
  const { buyers, clients, rounds } = options;
  const units = options.units * 2;
  const kinds: Kind[] = ['ours', 'no engine'];
  const measured = await interleave(
    kinds.map((kind) => arm(kind, { ...options, units }, clients)),
    options,
  );
  return {
    bench: 'saturated',
    settings: { buyers, units, clients, rounds, patience_seconds: patienceMs / 1000 },
    ...measured,
    judged: [
      atLeast(0.8, {
        bench: 'saturated',
        metric: 'decisions a second',
        ours: measured.samples['ours']!,
        baseline: measured.samples['no engine']!,
        baselineName: 'no engine',
      }),
    ],
    left_out: [],
  };
}

/** @param clients of a closed loop; without it buyers arrive at their rate */
function arm(kind: Kind, options: Options, clients?: number): Arm {
  const { buyers, rate, units } = options;
  return {
    name: kind,
    run: () =>
      withShop(kind, { [skus.hot]: units, [skus.none]: 0 }, options, async (shop) => {
        await warmUp(shop, { skus: [warmUpSku, skus.none] });
        const { result, cpuSeconds } = await shop.measured(() =>
          shop.generator.run({
            ...shop.target,
            name: 'buyer',
            arrivals:
              clients === undefined
                ? { kind: 'open', perSecond: rate, count: buyers }
                : { kind: 'closed', clients, count: buyers },
            skus: [skus.hot],
            patienceMs,
          }),
        );
        const numbers = numbersOf(result, units);
        if (kind === 'ours') numbers['CLAIM_TOO_LATE, share'] = await shareTooLate(shop.running);
        return {
          rate: numbers['decisions a second']!,
          numbers,
          cpuSeconds,
          // The floor is only measured.
          violations: [
            ...(kind === 'floor' ? [] : wrongAnswers(result)),
            ...(await oversights(shop, result, units)),
          ],
        } satisfies Round;
      }),
  };
}

function numbersOf(loaded: Loaded, units: number): Record<string, number> {
  const { visits, answers } = loaded;
  const startedMs = visits.reduce((least, { intendedMs }) => Math.min(least, intendedMs), Infinity);
  const decided = visits.filter(({ end }) => end === 'HELD' || end === 'REFUSED');
  const held = decided.filter(({ end }) => end === 'HELD').map(({ decidedMs }) => decidedMs);
  const lastMs = decided.reduce((most, { decidedMs }) => Math.max(most, decidedMs), 0);
  const all = Object.values(answers).reduce((sum, count) => sum + count, 0);
  return {
    'decisions a second': (decided.length * 1000) / (lastMs - startedMs),
    // Not measured when units were left.
    'last hold, ms': held.length < units ? NaN : held.sort((a, b) => a - b)[units - 1]! - startedMs,
    ...latencies('held', decisionTimes(loaded, 'HELD')),
    ...latencies('refused', decisionTimes(loaded, 'REFUSED')),
    ...timedOut([loaded]),
    'undecided, buyers': visits.length - decided.length,
    'SALE_BUSY, share of answers': (answers['503 SALE_BUSY'] ?? 0) / all,
  };
}

async function oversights(shop: Shop, { visits }: Loaded, units: number): Promise<string[]> {
  const held = visits.filter(({ end }) => end === 'HELD').length;
  const found = held === units ? [] : [`${held} of ${units} units were held`];
  if (shop.running.kind === 'floor') return found;
  const [rows] = await shop.sql<{ holds: number }>(`
    select count(*)::int as holds from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
    where h.status in ('HELD', 'CONFIRMED') and l.sku = '${skus.hot}'`);
  if (rows!.holds > units) found.push(`${rows!.holds} holds of ${units} units`);
  const refused = falselyRefused(visits, await freeOf(shop.sql, skus.hot));
  if (refused.length > 0) {
    found.push(`${refused.length} were told "sold out" while a unit was free for more than 1 s`);
  }
  return [...found, ...(await violationsOf(shop, visits))];
}
