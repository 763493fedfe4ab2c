import { skus } from './arms/standIn.js';
import type { Kind } from './arms/arm.js';
import { violationsOf } from './ledger.js';
import { interleave } from './measure.js';
import type { Arm, Options, Run } from './measure.js';
import {
  busyOrSlow,
  decisionTimes,
  latencies,
  timedOut,
  warmUp,
  withShop,
  wrongAnswers,
} from './shop.js';

/** What a refused request costs, when all is sold out: told, not judged. */
export async function refusal(options: Options): Promise<Run> {
  const { rounds, seconds, clients } = options;
  const kinds: Kind[] = ['ours', 'no engine'];
  const measured = await interleave(
    kinds.map((kind) => arm(kind, options)),
    options,
  );
  return {
    bench: 'refusal',
    settings: { clients, rounds, seconds },
    ...measured,
    judged: [],
    left_out: [],
  };
}

function arm(kind: Kind, options: Options): Arm {
  return {
    name: kind,
    run: (seconds) =>
      withShop(kind, { [skus.none]: 0 }, options, async (shop) => {
        await warmUp(shop, { skus: [skus.none] });
        const startedMs = Date.now();
        const { result, cpuSeconds } = await shop.measured(() =>
          shop.generator.run({
            ...shop.target,
            name: 'buyer',
            arrivals: { kind: 'closed', clients: options.clients, seconds },
            skus: [skus.none],
            patienceMs: 10_000,
          }),
        );
        const refused = decisionTimes(result, 'REFUSED');
        const all = Object.values(cpuSeconds).reduce((sum, each) => sum + each, 0);
        const perRefusal = (cpu: number) => (cpu * 1e6) / refused.length;
        return {
          rate: (refused.length * 1000) / (Date.now() - startedMs),
          numbers: {
            'CPU of the API per refusal, us': perRefusal(cpuSeconds['api'] ?? NaN),
            'CPU of all but the generator per refusal, us': perRefusal(
              all - (cpuSeconds['generator'] ?? 0),
            ),
            ...timedOut([result]),
            ...latencies('refused', refused),
          },
          cpuSeconds,
          violations: [
            ...wrongAnswers(result, busyOrSlow),
            ...(await violationsOf(shop, result.visits)),
          ],
        };
      }),
  };
}
