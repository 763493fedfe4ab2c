import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { addKey, newKey } from '../../db/keys.js';
import { audit } from '../db/audit.js';
import { until } from '../workflows/engine.js';
import { openSystem } from './processes.js';
import type { System } from './processes.js';
import { atOnce } from './service.js';
import type { Answer, Hold, Movement, Page } from './service.js';

/** API and worker as processes; the fraud check has a key with a name of its own, so that the ledger tells it apart. */
let system: System;
const fraudKey = newKey();

beforeAll(async () => {
  system = await openSystem();
  await addKey(system.shop.db, 'shop', 'fraud-check', fraudKey);
});
afterEach(async () => expect(await audit(system.shop.url)).toEqual({}));
afterAll(() => system.close());

const release = (id: string, reason: string, key: string) =>
  system.post(`/v1/holds/${id}/cancel`, { reason }, { key });

async function entries(id: string): Promise<Pick<Movement, 'type' | 'reason' | 'actor'>[]> {
  const { body } = await system.get<Page<Movement>>(`/v1/holds/${id}/movements`, {
    key: system.operatorKey,
  });
  return body.items.map(({ type, reason, actor }) => ({ type, reason, actor }));
}

/** The same request until it is answered for good, as its sender repeats it. */
async function persistently<T>(ask: () => Promise<Answer<T>>): Promise<Answer<T>> {
  for (let tries = 1; ; tries += 1) {
    const answer = await ask();
    if (answer.status < 500 || tries === 20) return answer;
    await pause(200);
  }
}

describe('R35: a release by fraud check or operator', { timeout: 120_000 }, () => {
  it('R35: hold, order and ledger say why and by whom: the fraud check, an operator, or the buyer’s shop', async () => {
    const sku = await system.product([3]);
    const releases = [
      { key: fraudKey, reason: 'failed the fraud check', actor: 'shop:fraud-check' },
      { key: system.operatorKey, reason: 'asked us by phone', actor: 'operator:ann' },
      { key: system.shopKey, reason: 'changed their mind', actor: 'shop:web' },
    ];
    for (const { key, reason, actor } of releases) {
      const { id } = await system.hold({ [sku]: 1 });
      const released = await release(id, reason, key);
      expect([released.status, released.body.reason]).toEqual([200, reason]);
      expect(await entries(id)).toContainEqual({ type: 'release_reservation', reason, actor });
      const none = await system.post(`/v1/holds/${id}/cancel`, {}, { key });
      expect([none.status, none.body.code]).toEqual([422, 'REASON_REQUIRED']);
    }
    expect(await system.counts(sku)).toEqual({ available: 3, held: 0, sold: 0 });
  });

  it('R35: 32 holds, each released while its payment comes: confirmed and paid, or cancelled and to be refunded, never both, and the ledger agrees', async () => {
    const sku = await system.product([32]);
    const holds = await atOnce(32, () => system.hold({ [sku]: 1 }));
    const ended: string[] = [];
    // How long a release takes under this load: within that time the payments are spread.
    let releaseMs = 300;
    for (let batch = 0; batch < 4; batch += 1) {
      const spreadMs = releaseMs * 1.3;
      const ends = await Promise.all(
        holds.slice(batch * 8, batch * 8 + 8).map(async ({ id }, index) => {
          const [event, payment] = [randomUUID(), randomUUID()];
          const [released, paid] = await Promise.all([
            persistently(() => release(id, 'failed the fraud check', fraudKey)),
            pause((index / 7) * spreadMs).then(() =>
              persistently(() => system.paid(id, { payment_id: payment }, event)),
            ),
          ]);
          expect(paid.status, paid.text).toBe(200);
          return { took: released.took, end: await settled(id, released) };
        }),
      );
      releaseMs = Math.max(...ends.map(({ took }) => took));
      ended.push(...ends.map(({ end }) => end));
    }
    const won = (status: string) => ended.filter((end) => end === status).length;
    expect(won('CANCELLED') + won('CONFIRMED')).toBe(32);
    expect(await system.counts(sku)).toEqual({
      available: won('CANCELLED'),
      held: 0,
      sold: won('CONFIRMED'),
    });
    // Both came up, else nothing was raced.
    expect(Math.min(won('CANCELLED'), won('CONFIRMED'))).toBeGreaterThan(0);
  });

  /** Waits until the money is decided, and holds it against the hold, the answer and the ledger. */
  async function settled(id: string, released: Answer<Hold>): Promise<string> {
    let hold!: Hold;
    await until('the money is decided', async () => {
      hold = (await system.get(`/v1/holds/${id}`)).body;
      return hold.payments[0]?.settlement != null;
    });
    const said = { status: hold.status, payments: hold.payments, released: released.body };
    const types = (await entries(id)).map(({ type }) => type).sort();
    if (hold.status === 'CANCELLED') {
      expect(hold.payments, JSON.stringify(said)).toMatchObject([
        { in_time: false, settlement: 'REFUND_DUE' },
      ]);
      expect(types).toEqual(['release_reservation', 'reserve']);
      expect([released.status, released.body.status]).toEqual([200, 'CANCELLED']);
    } else {
      expect(hold.payments, JSON.stringify(said)).toMatchObject([
        { in_time: true, settlement: 'APPLIED' },
      ]);
      expect(types).toEqual(['confirm_sold', 'reserve']);
      expect([released.status, released.body.code]).toEqual([409, 'HOLD_ALREADY_CONFIRMED']);
    }
    return hold.status;
  }
});
