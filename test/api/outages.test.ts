import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import type { Database } from '../../db/database.js';
import { connect } from '../../workflows/contract.js';
import type { Temporal } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { other, otherOnBins } from '../db/rivals.js';
import { cable } from './cable.js';
import type { Cable } from './cable.js';
import { openService, statuses, succeeded } from './service.js';
import type { Service } from './service.js';

/** Each route while each server is away: matrix.test.ts. Here is what happens afterwards. */

let service: Service;
let toTemporal: Cable;
let toPostgres: Cable;
let temporal: Temporal;
let db: Database;
/** Called before each message to a workflow. */
let beforeSend: () => Promise<void> = () => Promise.resolve();

beforeAll(async () => {
  const [host, port] = inject('temporalAddress').split(':') as [string, string];
  toTemporal = await cable({ host, port: Number(port) });
  temporal = connect({ address: toTemporal.address });
  const { url } = inject('postgres')[0]!;
  const postgres = new URL(url);
  toPostgres = await cable({ host: postgres.hostname, port: Number(postgres.port) });
  service = await openService({
    parts(parts) {
      const through = new URL(parts.url);
      through.host = toPostgres.address;
      db ??= openDatabase({ url: through.href, takeAppRole: true });
      return {
        db,
        holds: { ...parts.holds, client: temporal.client },
        async send(...of) {
          await beforeSend();
          return parts.send(...of);
        },
      };
    },
  });
});

afterEach(async () => {
  beforeSend = () => Promise.resolve();
  await toTemporal.plug();
  await toPostgres.plug();
  expect(await audit(service.shop.url)).toEqual({});
  expect(service.log.splice(0).filter((line) => line.includes('"defect"'))).toEqual([]);
});

afterAll(async () => {
  await service.close();
  await db.close();
  await temporal.close();
  await toTemporal.close();
  await toPostgres.close();
});

describe.each(['gone', 'hanging'] as const)('while Temporal is %s', (how) => {
  const away = () => (how === 'gone' ? toTemporal.pull() : toTemporal.freeze());

  // In one and the same outage: each of them waits for its end.
  it('B23 (a): a checkout that was told 503 holds nothing later, its key then gets 201; a payment event is stored and answered 503, its repeat confirms the hold; a cancel is 503 and says that it may happen still, repeated it is 200 and gives back once', async () => {
    const [sku, sold, given] = [
      await service.product([5]),
      await service.product([5]),
      await service.product([5]),
    ];
    const [buyer, key] = ['patient', randomUUID()];
    const paid = await service.hold({ [sold]: 1 });
    const event = succeeded({ hold_id: paid.id });
    const unwanted = await service.hold({ [given]: 1 });
    const cancel = () =>
      service.post(`/v1/holds/${unwanted.id}/cancel`, { reason: 'changed my mind' });

    await away();
    const [first, stored, refused] = await Promise.all([
      service.attempt({ [sku]: 1 }, { buyer, key }),
      service.deliver(event, { id: paid.id }),
      cancel(),
    ]);
    expect(first.status).toBe(503);
    expect(first.body.detail).toMatch(/nothing will be/);
    expect([stored.status, stored.body.code]).toEqual([503, 'WORKFLOW_UNAVAILABLE']);
    expect(stored.took).toBeLessThan(5000);
    const shown = await service.get(`/v1/holds/${paid.id}`);
    expect(shown.body.payments).toMatchObject([{ in_time: true, settlement: null }]);
    expect([refused.status, refused.body.code]).toEqual([503, 'WORKFLOW_UNAVAILABLE']);
    expect(refused.took).toBeLessThan(5000);
    await toTemporal.plug();
    await returned();

    expect(await service.ledger(sku)).toEqual([]);
    const again = await service.checkout({ [sku]: 1 }, { buyer, key });
    expect([again.status, again.body.status]).toEqual([201, 'HELD']);
    expect(await service.counts(sku)).toEqual({ available: 4, held: 1, sold: 0 });
    expect((await service.deliver(event, { id: paid.id })).status).toBe(200);
    await service.becomes(paid.id, 'CONFIRMED');
    expect(await service.ledger(sold)).toEqual(['reserve 1 b1', 'confirm_sold 1 b1']);
    expect((await cancel()).body.status).toBe('CANCELLED');
    expect(await service.ledger(given)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });
});

describe.each(['gone', 'hanging'] as const)('while Postgres is %s for the API', (how) => {
  it('a claim that was decided meanwhile is 202 with its address; the repeat of the key shows the hold', async () => {
    const sku = await service.product([5]);
    const [buyer, key] = ['patient', randomUUID()];
    beforeSend = async () => {
      await (how === 'gone' ? toPostgres.pull() : toPostgres.freeze());
    };
    const answer = await service.attempt<{ id: string; status: string }>(
      { [sku]: 1 },
      { buyer, key },
    );
    expect([answer.status, answer.body.status]).toEqual([202, 'CLAIMING']);
    expect(answer.headers['location']).toBe(`/v1/holds/${answer.body.id}`);
    expect(answer.took).toBeLessThan(5000);
    beforeSend = () => Promise.resolve();
    await toPostgres.plug();
    const again = await service.checkout({ [sku]: 1 }, { buyer, key });
    expect([again.status, again.body.id, again.body.status]).toEqual([200, answer.body.id, 'HELD']);
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1']);
  });
});

describe('while no worker runs', () => {
  it('F8: 8 checkouts are 503 within 5 s, and none of them is a ghost hold when a worker is back; then the keys get their units', async () => {
    const sku = await service.product([50]);
    // As many as may be under way after an outage, so that none waits at the gate.
    const keys = Array.from({ length: 8 }, () => randomUUID());
    await service.engine.stop();
    const ask = (how: 'attempt' | 'checkout') =>
      Promise.all(keys.map((key) => service[how]({ [sku]: 1 }, { buyer: 'b', key })));
    const refused = await ask('attempt');
    expect(statuses(refused)).toEqual({ 503: 8 });
    expect(new Set(refused.map(({ body }) => body.code))).toEqual(new Set(['CHECKOUT_TIMED_OUT']));
    expect(Math.max(...refused.map(({ took }) => took))).toBeLessThan(5000);
    await service.engine.start();
    await Promise.all(
      keys.map(async (key) => {
        const id = await service.holdIdOf('b', key);
        const handle = service.engine.holds.client.workflow.getHandle(`hold:${id}`);
        await handle.result().catch(() => undefined);
        expect((await handle.describe()).status.name).toBe('FAILED');
      }),
    );
    expect(await service.ledger(sku)).toEqual([]);
    expect(statuses(await ask('checkout'))).toEqual({ 201: 8 });
    expect(await service.counts(sku)).toEqual({ available: 42, held: 8, sold: 0 });
  });

  it('a payment event is 200, since Temporal keeps it: the next worker confirms the hold', async () => {
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 1 });
    await service.engine.stop();
    expect((await service.paid(hold.id)).status).toBe(200);
    const cancelled = await service.post(`/v1/holds/${hold.id}/cancel`, { reason: 'r' });
    expect([cancelled.status, cancelled.body.code]).toEqual([503, 'WORKFLOW_UNAVAILABLE']);
    expect(cancelled.took).toBeLessThan(5000);
    await service.engine.start();
    await service.becomes(hold.id, 'CONFIRMED');
    const refused = await service.post(`/v1/holds/${hold.id}/cancel`, { reason: 'r' });
    expect([refused.status, refused.body.code]).toEqual([409, 'HOLD_ALREADY_CONFIRMED']);
  });
});

describe('while somebody else holds a lock', () => {
  it('R25: on the bin, a checkout is 503 CHECKOUT_TIMED_OUT within 5 s and takes nothing when the lock is free; its key then gets the unit', async () => {
    const sku = await service.product([5]);
    const [buyer, key] = ['patient', randomUUID()];
    const rival = await otherOnBins(service.shop, sku);
    const answer = await service.attempt({ [sku]: 1 }, { buyer, key });
    expect([answer.status, answer.body.code]).toEqual([503, 'CHECKOUT_TIMED_OUT']);
    expect(answer.took).toBeLessThan(5000);
    await rival.rollback();
    expect(await service.ledger(sku)).toEqual([]);
    expect((await service.checkout({ [sku]: 1 }, { buyer, key })).status).toBe(201);
  });

  it('R26: on the key, a checkout is 202 within 5 s: whoever holds it may still decide; repeated, it is held', async () => {
    const sku = await service.product([5]);
    const [buyer, key] = ['patient', randomUUID()];
    const id = await service.holdIdOf(buyer, key);
    const rival = await other(
      service.shop,
      'select pg_advisory_xact_lock(tahan.key_lock($1::uuid))::text as answer',
      [id],
    );
    const answer = await service.attempt({ [sku]: 1 }, { buyer, key });
    expect([answer.status, answer.body.status]).toEqual([202, 'CLAIMING']);
    expect(answer.took).toBeLessThan(5000);
    const early = await service.get(answer.headers['location']!);
    expect([early.status, early.body.code]).toEqual([404, 'HOLD_NOT_FOUND']);
    await rival.rollback();
    expect((await service.checkout({ [sku]: 1 }, { buyer, key })).status).toBe(201);
    expect(await service.counts(sku)).toEqual({ available: 4, held: 1, sold: 0 });
  });

  it('R26: on the hold, a payment event is 503 STOCK_LEDGER_BUSY within 5 s; repeated, it confirms', async () => {
    const sku = await service.product([5]);
    const hold = await service.hold({ [sku]: 1 });
    const event = succeeded({ hold_id: hold.id });
    const rival = await other(
      service.shop,
      'select id as answer from tahan.holds where id = $1 for no key update',
      [hold.id],
    );
    const answer = await service.deliver(event, { id: hold.id });
    expect([answer.status, answer.body.code]).toEqual([503, 'STOCK_LEDGER_BUSY']);
    expect(answer.took).toBeLessThan(5000);
    await rival.rollback();
    expect((await service.deliver(event, { id: hold.id })).status).toBe(200);
    await service.becomes(hold.id, 'CONFIRMED');
  });
});

/** The API's own connection to Temporal is back: a fact, since the channel waits between tries. */
async function returned(): Promise<void> {
  const endsAt = Date.now() + 15_000;
  for (;;) {
    const { body } = await service.get<{ status: string }>('/readyz');
    if (body.status === 'ready') return;
    if (Date.now() > endsAt) throw new Error('Temporal is not back');
  }
}
