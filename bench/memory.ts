import { setTimeout as sleep } from 'node:timers/promises';
import { violationsOf } from './ledger.js';
import { atMost, median, within } from './measure.js';
import type { Options, Run } from './measure.js';
import { busyOrSlow, warmUp, withShop, wrongAnswers } from './shop.js';
import type { Shop } from './shop.js';
import { residentMiB } from './usage.js';

/** The memory is looked at so often. */
const everyMs = 5000;
/** Meanwhile the shop is open, calmly. */
const pairsPerSecond = 2;
const mostMiB = 1536;
/** Of the last third over the first: garbage comes and goes. */
const mostGrowth = 1.1;

/**
 * Memory of API and worker with many open holds, over some minutes in which others buy. Not part of
 * the usual run: with its defaults of 10,000 holds it takes 40 minutes.
 */
export async function memory(options: Options): Promise<Run> {
  const { holds, minutes } = options;
  const found = await withShop('ours', { HOT: holds, OTHER: 1_000_000 }, options, async (shop) => {
    await warmUp(shop, { pays: true });
    const empty = look(shop);
    const open = await shop.generator.run({
      ...shop.target,
      name: 'open',
      arrivals: { kind: 'closed', clients: 16, count: holds },
      skus: ['HOT'],
      holds: { seconds: 86_400 },
      patienceMs: 30_000,
    });
    options.say(`${holds} holds are open`);
    const pairs = shop.generator.start({
      ...shop.target,
      name: 'pair',
      arrivals: {
        kind: 'open',
        perSecond: pairsPerSecond,
        count: Math.ceil(pairsPerSecond * minutes * 60),
      },
      skus: ['OTHER'],
      pays: true,
      patienceMs: 30_000,
    });
    const looks = [];
    for (const endsMs = Date.now() + minutes * 60_000; Date.now() < endsMs; await sleep(everyMs)) {
      looks.push(look(shop));
    }
    const bought = await pairs.ended;
    const visits = [...open.visits, ...bought.visits];
    const unheld = open.visits.filter(({ end }) => end !== 'HELD').length;
    return {
      empty,
      looks,
      violations: [
        ...wrongAnswers(open, busyOrSlow),
        ...wrongAnswers(bought, busyOrSlow),
        ...(unheld > 0 ? [`${unheld} of ${holds} holds were not made`] : []),
        ...(await violationsOf(shop, visits)),
      ],
    };
  });

  const { empty, looks, violations } = found;
  const third = Math.max(1, Math.floor(looks.length / 3));
  const growth = (process: 'api' | 'worker') =>
    atMost(mostGrowth, {
      bench: 'memory',
      metric: `MiB of the ${process}, last third`,
      ours: looks.slice(-third).map((each) => each[process]),
      baseline: looks.slice(0, third).map((each) => each[process]),
      baselineName: 'first third',
    });
  const of = (process: 'api' | 'worker') => looks.map((each) => Math.round(each[process]));
  const perThousand = (process: 'api' | 'worker') =>
    Math.round(((median(of(process)) - empty[process]) / holds) * 10_000) / 10;
  return {
    bench: 'memory',
    settings: { holds, minutes, pairs_per_second: pairsPerSecond },
    samples: {},
    numbers: {
      'worker, MiB': of('worker'),
      'api, MiB': of('api'),
      'worker, MiB per 1,000 open holds': [perThousand('worker')],
      'api, MiB per 1,000 open holds': [perThousand('api')],
    },
    cpu_seconds: {},
    violations,
    judged: [
      within(mostMiB, {
        bench: 'memory',
        metric: 'MiB of the worker, most',
        ours: [Math.max(...of('worker'))],
      }),
      growth('worker'),
      growth('api'),
    ],
    left_out: [],
  };
}

function look({ running: { pids } }: Shop): { api: number; worker: number } {
  return { api: residentMiB(pids['api']!), worker: residentMiB(pids['worker']!) };
}
