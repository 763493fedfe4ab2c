import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { audit } from '../db/audit.js';
import { cable } from '../api/cable.js';
import type { Cable } from '../api/cable.js';
import { killProcess, startProcess } from '../workflows/process.js';
import type { OwnProcess } from '../workflows/process.js';
import { atOnce, sharedService } from '../api/service.js';
import { until } from '../workflows/engine.js';

const count = 1000;
const awayMs = 60_000;

describe('F13, G14: 60 s without the worker, Temporal or Postgres, over the ends of 1,000 holds', () => {
  const service = sharedService({ workers: false });
  let worker: OwnProcess;
  let temporal: Cable;
  let postgres: Cable;

  beforeAll(async () => {
    const [host, port] = inject('temporalAddress').split(':');
    temporal = await cable({ host: host!, port: Number(port) });
    const url = new URL(service.shop.url);
    postgres = await cable({ host: url.hostname, port: Number(url.port) });
    url.host = postgres.address;
    worker = await startProcess('worker', {
      DATABASE_URL: url.href,
      TEMPORAL_ADDRESS: temporal.address,
      TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
    });
  });
  afterAll(async () => {
    await killProcess(worker);
    await Promise.all([temporal.close(), postgres.close()]);
  });

  const away = {
    'the worker is stopped': {
      away: () => Promise.resolve(worker.child.kill('SIGSTOP')),
      back: () => Promise.resolve(worker.child.kill('SIGCONT')),
    },
    'the worker has no way to Temporal': {
      away: () => temporal.pull(),
      back: () => temporal.plug(),
    },
    'the worker has no way to Postgres': {
      away: () => postgres.pull(),
      back: () => postgres.plug(),
    },
  };

  it.each(Object.entries(away))(
    'F13, G14: %s: after its return every hold has ended within 30 s',
    async (what, { away, back }) => {
      const sku = await service.product([count]);
      let left = count;
      const began = Date.now();
      await atOnce(20, async () => {
        // All end while it is away: the hold is as long as all the claims may still take.
        while ((left -= 1) >= 0) {
          const seconds = 120 - Math.floor((Date.now() - began) / 1000);
          await service.hold({ [sku]: 1 }, { fields: { hold_seconds: Math.max(1, seconds) } });
        }
      });
      await until('the first ends are near', () => Date.now() > began + 115_000, 120_000);
      const open = async () =>
        (
          await service.shop.query<{ open: number }>(
            `select count(*)::int as open from tahan.holds h join tahan.hold_lines l on l.hold_id = h.id
           where l.sku = $1 and h.status = 'HELD'`,
            [sku],
          )
        )[0]!.open;
      expect(await open()).toBe(count);
      await away();
      await new Promise((over) => setTimeout(over, awayMs));
      // Overdue and not given back: but the next claim has them (R07).
      expect(await open()).toBe(count);
      expect(await service.counts(sku)).toEqual({ available: count, held: 0, sold: 0 });
      await back();
      const backAt = Date.now();
      await until('every hold has ended', async () => (await open()) === 0, 120_000);
      const took = Date.now() - backAt;
      process.stderr.write(`${what} for 60 s: ${count} overdue holds ended ${took} ms after\n`);
      expect(took).toBeLessThan(30_000);
      expect(await audit(service.shop.url)).toEqual({});
    },
    600_000,
  );
});
