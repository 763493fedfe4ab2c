import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createActivities } from '../../activities/index.js';
import { readHold } from '../../db/readHold.js';
import type { HoldRequest } from '../../workflows/contract.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { endOf, engine, until } from './engine.js';
import type { Engine } from './engine.js';
import { Gates } from './gates.js';
import { ownTemporal } from './ownTemporal.js';
import type { OwnTemporal } from './ownTemporal.js';
import { cancel, claimAgain, extend, pay } from './talk.js';

let shop: Shop;
let server: OwnTemporal;
let temporal: Engine;
const gates = new Gates();

beforeAll(async () => {
  [shop, server] = await Promise.all([openShop(), ownTemporal()]);
  temporal = await engine(gates.wrap(createActivities(shop.db)), { address: server.address });
  await temporal.start();
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
  await shop.close();
});

async function requestFor(sku: string): Promise<HoldRequest> {
  const claimDeadline = await shop.now(120_000);
  return { ...(await shop.request({ [sku]: 1 }, { claimDeadline })), indexed: true };
}

/** Repeats with the same id, as the API's callers do, until there is an answer. */
async function repeated<T extends { outcome: string }>(ask: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const sent = await ask();
    if ((sent.outcome !== 'NO_ANSWER' && sent.outcome !== 'UNAVAILABLE') || tries === 12)
      return sent;
  }
}

describe('F30, B23: Temporal is killed', () => {
  test(
    'F30, B23: with a claim, an extension, a cancel and a payment in flight: repeated with the same id each is answered, and was done once',
    { timeout: 180_000 },
    async () => {
      const sku = await shop.product([5]);
      const [claiming, extending, cancelling, paying] = await Promise.all(
        Array.from({ length: 4 }, () => requestFor(sku)),
      );
      const all = [claiming!, extending!, cancelling!, paying!];
      for (const request of all.slice(1))
        expect(await claimAgain(temporal, request)).toMatchObject({ answer: { outcome: 'HELD' } });
      const stops = [
        gates.stopAt(claiming!.holdId, 'claim', 'before'),
        gates.stopAt(extending!.holdId, 'extend', 'after'),
        gates.stopAt(cancelling!.holdId, 'cancel', 'after'),
        gates.stopAt(paying!.holdId, 'confirm', 'after'),
      ];
      const ask = {
        claim: () => claimAgain(temporal, claiming!),
        extend: () => extend(temporal, extending!, 60, 'same'),
        cancel: () => cancel(temporal, cancelling!, 'same'),
      };
      const first = [ask.claim(), ask.extend(), ask.cancel()];
      await pay(temporal, paying!, { paymentId: paying!.holdId });
      await until('all are under way', () => stops.every(({ reached }) => reached));
      await server.kill();
      for (const stop of stops) stop.open();
      for (const { outcome } of await Promise.all(first))
        expect(['NO_ANSWER', 'UNAVAILABLE']).toContain(outcome);
      // B23: Temporal is away, and nobody knows anything yet.
      const away = await ask.extend();
      expect(['NO_ANSWER', 'UNAVAILABLE']).toContain(away.outcome);

      await server.start();
      const [claimed, extended, cancelled] = await Promise.all([
        repeated(ask.claim),
        repeated(ask.extend),
        repeated(ask.cancel),
      ]);
      expect(claimed).toMatchObject({ outcome: 'ANSWERED' });
      expect(extended).toMatchObject({ answer: { outcome: 'EXTENDED', extensions: 1 } });
      expect(['ANSWERED', 'ENDED']).toContain(cancelled.outcome);
      expect(await endOf(temporal, paying!.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
      const rows = await Promise.all(all.map(({ holdId }) => readHold(shop.db, holdId)));
      expect(rows.map((row) => row?.status)).toEqual(['HELD', 'HELD', 'CANCELLED', 'CONFIRMED']);
      expect(rows[1]!.extensions).toBe(1);
      const [bin] = await shop.query('select available, held, sold from tahan.bins');
      expect(bin).toEqual({ available: 2, held: 2, sold: 1 });
      await until('all are listed', async () => (await runsOf(all)).every((count) => count > 0));
      expect(await runsOf(all)).toEqual([1, 1, 1, 1]);
      expect(await audit(shop.url)).toEqual({});
    },
  );
});

/** How many runs Temporal knows of each hold. */
function runsOf(requests: HoldRequest[]): Promise<number[]> {
  const { workflow } = temporal.holds.client;
  return Promise.all(
    requests.map(async ({ holdId }) => {
      let count = 0;
      for await (const _ of workflow.list({ query: `WorkflowId = 'hold:${holdId}'` })) count += 1;
      return count;
    }),
  );
}
