import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { workflowId } from '../../workflows/contract.js';
import { endOf, engine, failedTasks, handleOf, stateOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase } from './fakeDatabase.js';
import { cancel, hold, pay, payment } from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());
beforeEach(() => database.reset());
afterEach(() => expect(shop.problems.splice(0)).toEqual([]));

interface Payload {
  metadata: Record<string, Uint8Array>;
  data: Uint8Array;
}

const utf8 = (text: string) => new TextEncoder().encode(text);

/** Payloads that no decoder of ours reads: cut JSON, other codecs, no codec, no bytes, broken UTF-8. */
const undecodable: Payload[] = [
  { metadata: { encoding: utf8('json/plain') }, data: utf8('{"broken') },
  { metadata: { encoding: utf8('json/plain') }, data: new Uint8Array() },
  { metadata: { encoding: utf8('json/plain') }, data: Uint8Array.of(0xff, 0xfe, 0x00) },
  { metadata: { encoding: utf8('binary/gob') }, data: utf8('xyz') },
  { metadata: { encoding: utf8('binary/protobuf') }, data: utf8('xyz') },
  { metadata: { encoding: utf8('json/protobuf') }, data: utf8('{}') },
  { metadata: { encoding: utf8('binary/encrypted') }, data: utf8('secret') },
  { metadata: {}, data: utf8('{}') },
];

/** Values that decode and are no payment. */
const good = payment();
const malformed: unknown[] = [
  null,
  5,
  'words',
  true,
  [],
  [good],
  {},
  { ...good, provider: undefined },
  { ...good, paymentId: 7 },
  { ...good, paymentId: '' },
  { ...good, paymentId: 'x'.repeat(5000) },
  { ...good, paymentId: 'nul\0' },
  { ...good, provider: 'half \ud800' },
  { ...good, amountMinor: 1.5 },
  { ...good, amountMinor: -1 },
  { ...good, amountMinor: '100' },
  { ...good, currency: 'euro' },
  { ...good, status: 'done' },
  { ...good, eventId: {} },
  { toString: 1, valueOf: null, then: 'x', constructor: 'y' },
];

/** A signal straight through the client's service, as any other program may send it. */
async function signal(holdId: string, payloads: Payload[], signalName = 'paymentReceived') {
  await shop.holds.client.workflowService.signalWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: workflowId(holdId) },
    signalName,
    input: { payloads },
  });
}

function jsonPayload(value: unknown): Payload {
  return { metadata: { encoding: utf8('json/plain') }, data: utf8(JSON.stringify(value)) };
}

describe('F19, H6: what strangers send', () => {
  test('F19, H6: 3,000 malformed and undecodable signals to 6 holds: no task fails, payments and ends come on time, others notice nothing', async () => {
    const shapes = [
      ...undecodable.map((payload) => [payload]),
      ...malformed.map((value) => [jsonPayload(value)]),
      [],
      [undecodable[0]!, jsonPayload(good)],
    ];
    const [held, other] = [
      await Promise.all(Array.from({ length: 5 }, () => hold(shop))),
      await hold(shop),
    ];
    database.holdMs = 3000;
    const overdue = await hold(shop);
    const { endsAt } = database.rows.get(overdue.holdId)!;
    const targets = [...held, overdue];
    await Promise.all(
      targets.map(async ({ holdId }) => {
        for (let sent = 0; sent < 500; sent += 10)
          await Promise.all(
            Array.from({ length: 10 }, (_, at) =>
              signal(holdId, shapes[(sent + at) % shapes.length]!),
            ),
          ).catch((error: unknown) => {
            // The hold that expires meanwhile takes none any more.
            const ending = /already completed|workflow is closing/.test(String(error));
            if (holdId !== overdue.holdId || !ending) throw error;
          });
      }),
    );
    const dropped = async (holdId: string) => (await stateOf(shop, holdId)).dropped;
    for (const { holdId } of held)
      await until('all are dropped', async () => (await dropped(holdId)) === 500, 30_000);
    expect(await endOf(shop, overdue.holdId)).toMatchObject({ outcome: 'EXPIRED' });
    const { closeTime } = await handleOf(shop, overdue.holdId).describe();
    // The machine is busy with the flood; with one task that fails it would never end.
    expect(closeTime!.getTime() - endsAt).toBeLessThan(10_000);
    // They work as if nothing had been sent.
    await pay(shop, held[0]!);
    await pay(shop, other);
    for (const { holdId } of [held[0]!, other])
      expect(await endOf(shop, holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    for (const one of held.slice(1))
      expect(await cancel(shop, one)).toMatchObject({ answer: { outcome: 'CANCELLED' } });
    for (const { holdId } of targets) expect((await failedTasks(shop, holdId)).failed).toEqual([]);
  });

  test('F19, H6: undecodable updates are refused, with every codec, and the hold goes on', async () => {
    const { holdId, ...wanted } = await hold(shop);
    const { client } = shop.holds;
    for (const name of ['cancel', 'extend'])
      for (const payload of undecodable) {
        const { outcome } = await client.workflowService.updateWorkflowExecution({
          namespace: 'default',
          workflowExecution: { workflowId: workflowId(holdId) },
          waitPolicy: { lifecycleStage: 3 },
          request: {
            meta: { identity: 'stranger' },
            input: { name, args: { payloads: [payload] } },
          },
        });
        expect(outcome?.failure?.message).toMatch(/^malformed (cancel|extend)/);
      }
    expect(database.namesOf(holdId)).toEqual(['claim']);
    await pay(shop, { ...wanted, holdId });
    expect(await endOf(shop, holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });
});
