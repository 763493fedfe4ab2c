import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Answers } from '../../workflows/contract.js';
import { interceptedService } from './between.js';
import type { Between } from './between.js';
import { statuses } from './service.js';

const { service, put, asked, barrier } = interceptedService({ claimsInFlight: 3 });

describe('claims in flight', () => {
  it('with room for 3, the 4th to 10th checkout are 503 SALE_BUSY, and a repeat of one of the 3 joins it; nothing is lost', async () => {
    const sku = await service.product([50]);
    const { open, whenArrived } = barrier();
    const keys = Array.from({ length: 3 }, () => randomUUID());
    const ask = (key: string, quantity = 1) =>
      service.attempt({ [sku]: quantity }, { buyer: 'b', key });
    const running = keys.map((key) => ask(key));
    await whenArrived(3);

    const busy = await Promise.all(Array.from({ length: 7 }, () => ask(randomUUID())));
    expect(statuses(busy)).toEqual({ 503: 7 });
    expect(new Set(busy.map(({ body }) => body.code))).toEqual(new Set(['SALE_BUSY']));
    expect(busy[0]!.headers['retry-after']).toBe('1');
    expect(Math.max(...busy.map(({ took }) => took))).toBeLessThan(3000); // a claim without room would take 3.5 s
    const joined = ask(keys[0]!);
    const other = await ask(keys[0]!, 2);
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);

    const before = asked();
    open();
    expect(statuses(await Promise.all(running))).toEqual({ 201: 3 });
    const again = await joined;
    expect([again.status, again.headers['idempotent-replayed']]).toEqual([200, 'true']);
    expect(asked()).toBe(before);
    expect(await service.counts(sku)).toEqual({ available: 47, held: 3, sold: 0 });
    // The room is free again.
    expect((await ask(randomUUID())).status).toBe(201);
  });

  it('whoever joins a claim gets its answer, also when it is a refusal', async () => {
    const sku = await service.product([1]);
    const other = await service.product([1]);
    const { open, whenArrived } = barrier();
    const of = { buyer: 'b', key: randomUUID() };
    const first = service.attempt({ [sku]: 1 }, of);
    await whenArrived(1);
    // Another process sells the unit meanwhile.
    await service.claimElsewhere({ [sku]: 1 });
    const second = service.attempt({ [sku]: 1 }, of);
    // It has joined once its read is done: then a third key is read after it, and passes.
    const third = service.attempt({ [other]: 1 }, { buyer: 'b' });
    await whenArrived(2);
    open();
    const answers = await Promise.all([first, second]);
    expect(answers.map(({ status, body }) => [status, body.code])).toEqual(
      Array(2).fill([409, 'INSUFFICIENT_STOCK']),
    );
    expect((await third).status).toBe(201);
  });
});

describe('what Temporal answers is not shown before Postgres was asked', () => {
  it('"this hold has ended" is answered by its row: 200 and the hold', async () => {
    const sku = await service.product([5]);
    put(async (pass) => {
      await pass();
      return { outcome: 'ENDED' };
    });
    const answer = await service.attempt({ [sku]: 1 });
    expect([answer.status, answer.body.status]).toEqual([200, 'HELD']);
    expect(answer.headers['idempotent-replayed']).toBe('true');
  });

  it('HELD out of a dead run, while the row is CANCELLED, is 200 with CANCELLED', async () => {
    const sku = await service.product([5]);
    put(async (pass) => {
      const sent = await pass();
      if (sent.outcome === 'ANSWERED' && sent.answer.outcome === 'HELD') {
        const path = `/v1/holds/${sent.answer.holdId}/cancel`;
        await service.post(path, { reason: 'at once' });
      }
      return sent;
    });
    const answer = await service.attempt({ [sku]: 1 });
    expect([answer.status, answer.body.status]).toEqual([200, 'CANCELLED']);
  });

  it("another request's answer under the same key is 422 and shows nothing of it; if the row is this request's, it is shown", async () => {
    const sku = await service.product([5]);
    const foreign: Between = async (pass) => {
      const sent = await pass();
      return sent.outcome === 'ANSWERED'
        ? { ...sent, answer: { ...sent.answer, requestHash: 'another' } }
        : sent;
    };
    put(foreign);
    const own = await service.attempt({ [sku]: 1 });
    expect([own.status, own.body.status]).toEqual([200, 'HELD']);
    put(() =>
      Promise.resolve({
        outcome: 'ANSWERED',
        answer: {
          outcome: 'INSUFFICIENT_STOCK',
          requestHash: 'another',
          shortfalls: [{ sku: 'secret', requested: 9, available: 8 }],
        },
      }),
    );
    const other = await service.attempt({ [sku]: 1 });
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    expect(other.text).not.toContain('secret');
  });

  it('no answer in time, while the claim was committed, is 201 from Postgres within 5 s', async () => {
    const sku = await service.product([5]);
    put(async (pass) => {
      await pass();
      return { outcome: 'NO_ANSWER', detail: 'test' };
    });
    const answer = await service.attempt({ [sku]: 1 });
    expect([answer.status, answer.body.status]).toEqual([201, 'HELD']);
    expect(answer.took).toBeLessThan(5000);
  });

  it('no answer in time, while the claim was refused, is the refusal', async () => {
    const sku = await service.product([0]);
    put(async (pass) => {
      await pass();
      return { outcome: 'UNAVAILABLE', detail: 'test', certain: false };
    });
    const answer = await service.attempt({ [sku]: 1 });
    expect([answer.status, answer.body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
  });

  it('a product that vanishes between the read and the claim, or gets a smaller cap, is 404 or 422', async () => {
    const sku = await service.product([5]);
    const answers: Answers['claimed'][] = [
      { outcome: 'NOT_FOUND', sku, requestHash: '' },
      { outcome: 'HOLD_TOO_LONG', maxHoldSeconds: 5, requestHash: '' },
    ];
    const found: [number, string][] = [];
    for (const answer of answers) {
      put(async (pass) => {
        const sent = await pass();
        if (sent.outcome !== 'ANSWERED') return sent;
        return { ...sent, answer: { ...answer, requestHash: sent.answer.requestHash } };
      });
      const { status, body } = await service.attempt({ [sku]: 1 });
      found.push([status, body.code]);
    }
    expect(found).toEqual([
      [404, 'PRODUCT_NOT_FOUND'],
      [422, 'INVALID_HOLD_SECONDS'],
    ]);
  });
});
