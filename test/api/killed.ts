import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, inject } from 'vitest';
import { root } from '../../cli/root.js';
import { readHold } from '../../db/readHold.js';
import { until } from '../workflows/engine.js';
import { cable } from './cable.js';
import { paymentOf, settles } from './moneyBook.js';
import type { MoneyBook } from './moneyBook.js';
import { atOnce, signed, succeeded } from './service.js';
import type { Service } from './service.js';

/** `node dist/api/main.js`, as a deployment starts it. */
export interface ApiProcess {
  url: string;
  kill(): Promise<void>;
}

export async function startApi(service: Service, temporalAddress: string): Promise<ApiProcess> {
  const child: ChildProcess = spawn(process.execPath, [join(root, 'dist/api/main.js')], {
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      DATABASE_URL: service.shop.url,
      TEMPORAL_ADDRESS: temporalAddress,
      TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
      TAHAN_WEBHOOK_SECRETS: service.secret,
      TAHAN_EXIT_WITH_PARENT: '1',
      PORT: '0',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  const exited = once(child, 'exit');
  let url = '';
  createInterface(child.stdout!).on('line', (line) => {
    if (line.startsWith('{"ready":true')) url = (JSON.parse(line) as { url: string }).url;
  });
  await until('the API is ready', () => url !== '' || child.exitCode !== null, 60_000);
  expect(child.exitCode).toBeNull();
  return {
    url,
    async kill() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

/** One payment, and how it is told: in time or late, by a sender that repeats or never does. */
interface Told {
  holdId: string;
  paymentId: string;
  event: object;
  late: boolean;
  /** Late, but its product accepts that: nothing of it is settled when it is stored. */
  accepted: boolean;
  repeats: boolean;
}

/**
 * Payments whose events are stored by an API process that is killed before it can tell Temporal: its
 * way there is frozen from the start, so no signal leaves it, however the machine is busy. The kills
 * come while the requests are open. What is paid in time has so many seconds until then.
 */
export async function killedBeforeTheSignal(
  service: Service,
  book: MoneyBook,
  { kills, each, holdSeconds }: { kills: number; each: number; holdSeconds: number },
): Promise<void> {
  const [host, port] = inject('temporalAddress').split(':') as [string, string];
  const ways = await atOnce(kills, () => cable({ host, port: Number(port) }));
  for (const way of ways) way.freeze();
  const apis = await atOnce(kills, (n) => startApi(service, ways[n]!.address));
  const refused = await service.product([kills * each]);
  const accepting = await service.product([kills * each], { late_payment: 'accept_if_available' });

  /** Half in time, half late; of each half every second one's sender repeats. */
  const told = await atOnce(kills * each, async (n): Promise<Told> => {
    const late = n % 2 === 1;
    const accepted = late && n % 8 > 4;
    const fields = { hold_seconds: late ? 1 : holdSeconds };
    const { id } = await service.hold({ [accepted ? accepting : refused]: 1 }, { fields });
    const paymentId = randomUUID();
    const event = succeeded({ hold_id: id, payment_id: paymentId });
    return { holdId: id, paymentId, event, late, accepted, repeats: n % 4 > 1 };
  });
  for (const { holdId, late } of told) if (late) await service.becomes(holdId, 'EXPIRED', 60_000);

  const deliveries = told.map(({ event, paymentId }, n) => {
    const raw = JSON.stringify(event);
    const headers = signed(service.secret, raw, { id: `e-${paymentId}` });
    const { url } = apis[n % kills]!;
    return fetch(`${url}/v1/payments/events`, {
      method: 'POST',
      body: raw,
      headers: { ...headers, 'content-type': 'application/json' },
    }).then(
      ({ status }) => status,
      () => 'cut',
    );
  });
  const ids = told.map(({ paymentId }) => paymentId);
  await until(
    'all are stored',
    async () => {
      const text = 'select from tahan.payments where payment_id = any ($1)';
      return (await service.shop.query(text, [ids])).length === ids.length;
    },
    15_000,
  );
  await Promise.all(apis.map((api) => api.kill()));
  await Promise.all(ways.map((way) => way.close()));
  // Nobody was told that it is done: 503 is what a slow machine's kill may come after.
  for (const answer of await Promise.all(deliveries)) expect(['cut', 503]).toContain(answer);
  for (const { paymentId, late } of told)
    expect(await paymentOf(service, paymentId)).toMatchObject({ in_time: !late });

  for (const { event, paymentId, repeats } of told) {
    if (!repeats) continue;
    const again = await service.deliver(event, { id: `e-${paymentId}` });
    expect([again.status, again.body.outcome]).toEqual([200, 'DUPLICATE']);
  }
  // Of the others the deadline finds what came in time; a start of the API finds the rest.
  const next = await startApi(service, inject('temporalAddress'));
  try {
    for (const one of told) {
      const end = one.accepted ? 'ACCEPTED_LATE' : one.late ? 'REFUNDED' : 'APPLIED';
      await settles(service, one.paymentId, end);
      expect(book.of(one.paymentId)).toEqual(end === 'REFUNDED' ? [1000] : []);
      const hold = await readHold(service.shop.db, one.holdId);
      expect(hold!.status).toBe(end === 'REFUNDED' ? 'EXPIRED' : 'CONFIRMED');
    }
  } finally {
    await next.kill();
  }
}
