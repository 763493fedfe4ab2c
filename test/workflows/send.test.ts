import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { NativeConnection, Worker } from '@temporalio/worker';
import {
  checkSearchAttributes,
  connect,
  send,
  sendSettle,
  taskQueues,
} from '../../workflows/contract.js';
import type { Holds, Message } from '../../workflows/contract.js';
import { endOf, engine, handleOf, until } from './engine.js';
import type { Engine } from './engine.js';
import { FakeDatabase, request } from './fakeDatabase.js';
import { forward, listenSilently } from './proxy.js';
import { cancel, claimAgain, extend, hold, pay, payment, withinMs } from './talk.js';

const database = new FakeDatabase();
let shop: Engine;

beforeAll(async () => {
  shop = await engine(database.activities());
  await shop.start();
});
afterAll(() => shop.close());
beforeEach(() => database.reset());
afterEach(() => expect(shop.problems.splice(0)).toEqual([]));

/** One of each kind. */
const everyMessage: Message[] = [
  { kind: 'claimed' },
  { kind: 'cancel', reason: 'r', actor: 'shop', requestId: 'c' },
  { kind: 'extend', seconds: 5, actor: 'shop', requestId: 'e' },
  { kind: 'payment', payment: payment() },
  { kind: 'start' },
  { kind: 'adopt' },
];

/** Sends one of each kind at once, and how long the slowest answer took. */
async function sendAll(holds: Holds, limitMs: number) {
  const began = performance.now();
  const sent = await Promise.all(
    everyMessage.map((message) => send(holds, request(), message, { withinMs: limitMs })),
  );
  return { outcomes: sent.map(({ outcome }) => outcome), tookMs: performance.now() - began };
}

describe('send always answers in time and never throws', () => {
  test('no worker: questions get NO_ANSWER in time, payments and starts are SENT, and all run when a worker comes', async () => {
    const away: Holds = { ...shop.holds, prefix: `${shop.holds.prefix}away-` };
    const { outcomes, tookMs } = await sendAll(away, 1000);
    expect(outcomes).toEqual(['NO_ANSWER', 'NO_ANSWER', 'NO_ANSWER', 'SENT', 'SENT', 'ANSWERED']);
    expect(tookMs).toBeLessThan(2500);
    const wanted = request();
    await send(away, wanted, { kind: 'payment', payment: payment() }, { withinMs });
    const connection = await NativeConnection.connect({ address: inject('temporalAddress') });
    const late = await Worker.create({
      connection,
      taskQueue: taskQueues(away.prefix).holds,
      activities: database.activities(),
      workflowBundle: { codePath: inject('bundlePath') },
    });
    await late.runUntil(async () => {
      expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
    });
    await connection.close();
  });

  test('Temporal refuses connections: UNAVAILABLE within 3 s, for every kind of message', async () => {
    const temporal = connect({ address: '127.0.0.1:1' });
    const gone: Holds = { ...shop.holds, client: temporal.client };
    const { outcomes, tookMs } = await sendAll(gone, 4000);
    expect(new Set(outcomes)).toEqual(new Set(['UNAVAILABLE']));
    expect(tookMs).toBeLessThan(3000);
    const settled = await sendSettle(gone, randomUUID(), payment(), { withinMs: 4000 });
    expect(settled.outcome).toBe('UNAVAILABLE');
    await temporal.close();
  });

  test('F8: Temporal goes before a call: it is certain that nothing was sent; in the middle of one: it is not', async () => {
    const way = await forward(0, inject('temporalAddress'));
    const temporal = connect({ address: way.address });
    const prefix = `${shop.holds.prefix}away-`;
    const holds: Holds = { ...shop.holds, prefix, client: temporal.client };
    const claim = (wanted = request()) =>
      send(holds, wanted, { kind: 'claimed' }, { withinMs: 4000 });
    const wanted = request();
    const asked = claim(wanted);
    await until('it has arrived', () =>
      handleOf(shop, wanted.holdId)
        .describe()
        .then(
          () => true,
          () => false,
        ),
    );
    way.close();
    expect(await asked).toMatchObject({ outcome: 'UNAVAILABLE', certain: false });
    expect(await claim()).toMatchObject({ outcome: 'UNAVAILABLE', certain: true });
    await temporal.close();
  });

  test('Temporal accepts connections and says nothing: NO_ANSWER by our own timer', async () => {
    const silent = await listenSilently();
    const temporal = connect({ address: silent.address });
    const { outcomes, tookMs } = await sendAll({ ...shop.holds, client: temporal.client }, 700);
    for (const outcome of outcomes) expect(['NO_ANSWER', 'UNAVAILABLE']).toContain(outcome);
    expect(tookMs).toBeLessThan(4000); // without it, never
    await temporal.close();
    silent.close();
  });

  test('a client that never comes back, and one that throws anything: NO_ANSWER and UNAVAILABLE', async () => {
    const clientThat = (withDeadline: () => Promise<never>) =>
      ({ ...shop.holds, client: { withDeadline } as unknown as Holds['client'] }) satisfies Holds;
    const hanging = await sendAll(
      clientThat(() => new Promise(() => {})),
      300,
    );
    expect(new Set(hanging.outcomes)).toEqual(new Set(['NO_ANSWER']));
    expect(hanging.tookMs).toBeLessThan(4000);
    for (const thrown of [new TypeError('x'), undefined, 'words', { code: 5 }]) {
      // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
      const throwing = clientThat(() => Promise.reject(thrown));
      for (const outcome of (await sendAll(throwing, 1000)).outcomes)
        expect(['NO_ANSWER', 'UNAVAILABLE']).toContain(outcome);
    }
  });

  test('closing the client while calls are being retried ends neither the process nor a caller', async () => {
    const closedAfter = async (ms: number) => {
      const temporal = connect({ address: '127.0.0.1:1' });
      const calls = sendAll({ ...shop.holds, client: temporal.client }, 4000);
      await pause(ms); // the retries are due between 0.1 and 0.9 s
      await temporal.close();
      return (await calls).outcomes;
    };
    const outcomes = await Promise.all([50, 150, 250, 350, 450, 550, 650].map(closedAfter));
    for (const outcome of outcomes.flat()) expect(['NO_ANSWER', 'UNAVAILABLE']).toContain(outcome);
    await pause(500); // a retry that nobody waits for throws from its timer
  });

  test('Temporal comes back: the same client is usable again within 5 s', async () => {
    const proxy = await listenSilently();
    const temporal = connect({ address: proxy.address });
    const holds: Holds = { ...shop.holds, client: temporal.client };
    proxy.close();
    const wanted = request();
    expect((await send(holds, wanted, { kind: 'start' }, { withinMs: 1500 })).outcome).not.toBe(
      'SENT',
    );
    const back = await forward(proxy.port, inject('temporalAddress'));
    const began = performance.now();
    await until(
      'usable',
      async () =>
        (await send(holds, wanted, { kind: 'start' }, { withinMs: 1500 })).outcome === 'SENT',
    );
    expect(performance.now() - began).toBeLessThan(5000);
    await temporal.close();
    back.close();
    await handleOf(shop, wanted.holdId).terminate();
  });

  test('F21 the hold has ended: every message says ENDED, and claimed repeats its answer', async () => {
    const wanted = await hold(shop);
    await cancel(shop, wanted);
    await endOf(shop, wanted.holdId);
    expect(await claimAgain(shop, wanted)).toMatchObject({ answer: { outcome: 'HELD' } });
    expect(await cancel(shop, wanted)).toEqual({ outcome: 'ENDED' });
    expect(await extend(shop, wanted, 5)).toEqual({ outcome: 'ENDED' });
    expect(await pay(shop, wanted)).toEqual({ outcome: 'ENDED' });
    const start = await send(shop.holds, wanted, { kind: 'start' }, { withinMs });
    expect(start).toEqual({ outcome: 'ENDED' });
    expect(database.callsOf('claim', wanted.holdId)).toBe(1);
  });

  test('R52 the payment service may signal the workflow by its id, without this code', async () => {
    const wanted = await hold(shop);
    await handleOf(shop, wanted.holdId).signal('paymentReceived', payment());
    expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });
});

describe('R52 an operator reads a hold in the Temporal UI without opening JSON', () => {
  test('summary, details, attributes, and words on timer and activities', async () => {
    const wanted = await hold(shop, {
      buyerId: 'someone@example.com',
      lines: [
        { sku: 'SKU-1', quantity: 2 },
        { sku: 'SKU-2', quantity: 1 },
      ],
    });
    const handle = handleOf(shop, wanted.holdId);
    const { staticSummary, typedSearchAttributes } = await describeFully(wanted.holdId);
    expect(staticSummary).toMatch(/^2 x SKU-1, 1 x SKU-2 for buyer [0-9a-f]{8}$/);
    expect(typedSearchAttributes).toMatchObject({
      HoldSkus: ['SKU-1', 'SKU-2'],
      HoldBuyer: expect.stringMatching(/^[0-9a-f]{16}$/) as string,
      HoldStatus: 'HELD',
    });
    const details = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    expect(details.currentDetails).toMatch(/^\*\*HELD\*\* until \d{4}-/);
    await pay(shop, wanted);
    await endOf(shop, wanted.holdId);
    expect((await describeFully(wanted.holdId)).typedSearchAttributes['HoldStatus']).toBe(
      'CONFIRMED',
    );
    const summaries = await summariesOf(wanted.holdId);
    expect(summaries).toEqual(
      expect.arrayContaining([
        'claim the units',
        'payment window',
        'record payment',
        'confirm payment',
      ]),
    );
    const listed = shop.holds.client.workflow.list({
      query: `HoldStatus = 'CONFIRMED' and HoldSkus = 'SKU-2' and WorkflowId = 'hold:${wanted.holdId}'`,
    });
    await until('listed', async () => {
      for await (const _ of listed) return true;
      return false;
    });
  });

  test('R33 an order of a cart says what was in it as soon as it is claimed, and a repeat of its claim says it too', async () => {
    for (const outcome of ['HELD', 'ALREADY']) {
      // ALREADY: the first answer was lost after the commit.
      database.instead.claim = (call, holdId) => {
        if (outcome === 'HELD' || call > 1) return undefined;
        const row = {
          status: 'HELD',
          requestHash: 'hash-1',
          payments: new Map(),
          units: 3,
        } as const;
        database.rows.set(holdId, { ...row, endsAt: Date.now() + 60_000 });
        throw new Error('the answer is lost');
      };
      const wanted = request({ lines: null, order: true });
      expect(await claimAgain(shop, wanted)).toMatchObject({ answer: { outcome } });
      const { staticSummary, typedSearchAttributes } = await describeFully(wanted.holdId);
      expect(staticSummary).toMatch(/^the cart for buyer [0-9a-f]{8}$/);
      expect(typedSearchAttributes).toMatchObject({
        HoldSkus: ['SKU-1', 'SKU-2'],
        HoldStatus: 'HELD',
      });
      const details = await handleOf(shop, wanted.holdId).query<{ currentDetails: string }>(
        '__temporal_workflow_metadata',
      );
      expect(details.currentDetails).toMatch(
        /^\*\*HELD\*\* until \d{4}-.*\n- from the cart: 2 x SKU-1, 1 x SKU-2$/,
      );
      await cancel(shop, wanted);
      expect(await endOf(shop, wanted.holdId)).toMatchObject({ outcome: 'CANCELLED' });
      const ended = await describeFully(wanted.holdId);
      expect(ended.typedSearchAttributes['HoldSkus']).toEqual(['SKU-1', 'SKU-2']);
    }
  });

  test('H12 50 SKUs of 64 characters start too: as many are indexed as fit', async () => {
    const lines = Array.from({ length: 50 }, (_, index) => ({
      sku: `${String(index).padStart(3, '0')}${'x'.repeat(61)}`,
      quantity: 10_000,
    }));
    const wanted = await hold(shop, { lines });
    const { staticSummary, typedSearchAttributes } = await describeFully(wanted.holdId);
    expect(staticSummary).toMatch(/and 48 more for buyer/);
    expect((typedSearchAttributes['HoldSkus'] as string[]).length).toBe(26);
    await handleOf(shop, wanted.holdId).terminate();
  });
});

describe('search attributes that are not registered', () => {
  let other: Engine;
  const namespace = `bare-${randomUUID().slice(0, 8)}`;

  beforeAll(async () => {
    const { client } = shop.holds;
    await client.workflowService.registerNamespace({
      namespace,
      workflowExecutionRetentionPeriod: { seconds: 86_400 as never },
    });
    other = await engine(database.activities(), { namespace });
    await until(
      'the namespace',
      () =>
        other.holds.client.workflowService
          .describeNamespace({ namespace })
          .then(() => other.start())
          .then(
            () => true,
            () => false,
          ),
      60_000,
    );
  });
  afterAll(() => other.close());

  test('B25: the first claim in an empty namespace: a hold is made without them, although it was thought that they are there', async () => {
    await until(
      'the namespace is usable',
      async () => {
        const probe = await send(other.holds, request(), { kind: 'claimed' }, { withinMs: 5000 });
        return probe.outcome === 'ANSWERED';
      },
      60_000,
    );
    const wanted = await hold(other);
    await pay(other, wanted);
    expect(await endOf(other, wanted.holdId)).toMatchObject({ outcome: 'CONFIRMED' });
  });

  test('the check adds them where it may', async () => {
    const temporal = connect({ address: inject('temporalAddress'), namespace });
    const { operatorService } = temporal.client.connection as unknown as {
      operatorService: { addSearchAttributes: unknown };
    };
    const add = operatorService.addSearchAttributes;
    operatorService.addSearchAttributes = () => Promise.reject(new Error('PERMISSION_DENIED'));
    const refused = await checkSearchAttributes(temporal.client);
    expect(refused).toEqual({
      outcome: 'MISSING',
      missing: ['HoldSkus', 'HoldBuyer', 'HoldStatus'],
      command:
        `temporal operator search-attribute create --namespace ${namespace}` +
        ' --name HoldSkus --type KeywordList --name HoldBuyer --type Keyword --name HoldStatus --type Keyword',
      detail: 'PERMISSION_DENIED',
    });
    operatorService.addSearchAttributes = add;
    await until(
      'added',
      async () => (await checkSearchAttributes(temporal.client)).outcome === 'REGISTERED',
    );
    await temporal.close();
  });

  test('the check says UNKNOWN in time when Temporal is away, and names the command', async () => {
    const temporal = connect({ address: '127.0.0.1:1', namespace: 'shop' });
    const check = await checkSearchAttributes(temporal.client, { withinMs: 2000 });
    expect(check).toMatchObject({
      outcome: 'UNKNOWN',
      command: expect.stringContaining('--namespace shop') as string,
    });
    await temporal.close();
  });
});

async function describeFully(holdId: string) {
  const description = await handleOf(shop, holdId).describe();
  const { typedSearchAttributes } = description;
  return {
    staticSummary: await description.staticSummary(),
    typedSearchAttributes: Object.fromEntries(
      typedSearchAttributes.getAll().map(({ key, value }) => [key.name, value]),
    ),
  };
}

async function summariesOf(holdId: string): Promise<string[]> {
  const { events } = await handleOf(shop, holdId).fetchHistory();
  return events!.flatMap(({ userMetadata }) => {
    const data = userMetadata?.summary?.data;
    return data ? [JSON.parse(Buffer.from(data).toString()) as string] : [];
  });
}
