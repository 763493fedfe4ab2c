import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { length } from '../setup/length.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Answer, Hold, Movement, Page } from './service.js';

const service = sharedService();
/** Of 20 holds each, which a cancel and their end race for. */
const rounds = length(2, 5);

function cancel(id: string, query = '', reason = 'changed my mind'): Promise<Answer<Hold>> {
  return service.post(`/v1/holds/${id}/cancel${query}`, { reason });
}

function extend(id: string, seconds: number, idempotencyKey = randomUUID()): Promise<Answer<Hold>> {
  return service.post(`/v1/holds/${id}/extend`, { seconds }, { idempotencyKey });
}

function without(body: object): object {
  return { ...body, request_id: undefined };
}

describe('reading holds', () => {
  it('S6: for another buyer, a missing hold and something that is no id the answer is the same 404, word for word', async () => {
    const sku = await service.product([50]);
    const own = await service.hold({ [sku]: 1 }, { buyer: 'a' });
    const missing = randomUUID();
    const reads = [
      `/v1/holds/${own.id}?buyer_id=b`,
      `/v1/holds/${missing}?buyer_id=b`,
      `/v1/holds/${missing}`,
      '/v1/holds/1',
      `/v1/holds/${own.id}x`,
      "/v1/holds/'%20or%201=1",
    ];
    const answers = [
      ...(await Promise.all(reads.map((path) => service.get(path)))),
      await cancel(own.id, '?buyer_id=b'),
      await cancel(missing, '?buyer_id=b'),
      await service.post(`/v1/holds/${own.id}/extend?buyer_id=b`, { seconds: 10 }),
      await service.post(`/v1/holds/${missing}/extend?buyer_id=b`, { seconds: 10 }),
      ...(await Promise.all(
        [own.id, missing].map((id) =>
          service.get(`/v1/holds/${id}/movements?buyer_id=b`, { key: service.operatorKey }),
        ),
      )),
    ];
    for (const { status, body } of answers) {
      expect(status).toBe(404);
      expect(without(body)).toEqual(without(answers[0]!.body));
    }
    expect(answers[0]!.body.code).toBe('HOLD_NOT_FOUND');
    expect(answers[0]!.body.detail).toContain('repeat its POST with the same Idempotency-Key');
    for (const path of [`/v1/holds/${own.id}`, `/v1/holds/${own.id}?buyer_id=a`]) {
      expect((await service.get(path)).body.status).toBe('HELD');
    }
    expect((await service.get(`/v1/holds/${own.id.toUpperCase()}`)).body.id).toBe(own.id);
  });

  it('a refused hold stays readable, with what it lacked', async () => {
    const sku = await service.product([1]);
    await service.claimElsewhere({ [sku]: 2 }, { buyer: 'refused' });
    const { body } = await service.get<Page<Hold>>('/v1/holds?buyer_id=refused', {
      key: service.operatorKey,
    });
    expect(body.items).toHaveLength(1);
    expect(body.items[0]).toMatchObject({
      status: 'REJECTED',
      expires_at: null,
      lines: [],
      refusal: {
        code: 'INSUFFICIENT_STOCK',
        shortfalls: [{ sku, requested: 2, available: 1 }],
      },
    });
    const { id } = body.items[0]!;
    const answers = [await cancel(id), await extend(id, 10)];
    for (const { status, body } of answers) {
      expect([status, body.code]).toEqual([409, 'INSUFFICIENT_STOCK']);
    }
  });

  it('operators list holds by status, product, buyer and end, newest first; 5 holds in pages of 2 are 2, 2 and 1', async () => {
    const sku = await service.product([50]);
    const other = await service.product([50]);
    const made: Hold[] = [];
    for (let index = 0; index < 5; index += 1) {
      const fields = { hold_seconds: 600 + index };
      made.push(await service.hold({ [sku]: 1 }, { buyer: `lister-${index}`, fields }));
    }
    await service.hold({ [other]: 1 });
    await cancel(made[0]!.id);
    const list = async (query: string) => {
      const answer = await service.get<Page<Hold>>(`/v1/holds?${query}`, {
        key: service.operatorKey,
      });
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    };
    const newest = made.map(({ id }) => id).reverse();
    const ids = ({ items }: Page<Hold>) => items.map(({ id }) => id);
    const pages: string[][] = [];
    let cursor: string | null = null;
    do {
      const after: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page: Page<Hold> = await list(`sku=${sku}&limit=2${after}`);
      pages.push(ids(page));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(pages).toEqual([newest.slice(0, 2), newest.slice(2, 4), newest.slice(4)]);
    expect(ids(await list(`sku=${sku}&status=CANCELLED`))).toEqual([made[0]!.id]);
    expect(ids(await list(`sku=${sku}&buyer_id=lister-3`))).toEqual([made[3]!.id]);
    const before = encodeURIComponent(made[2]!.expires_at!);
    expect(ids(await list(`sku=${sku}&expires_before=${before}`))).toEqual([
      made[1]!.id,
      made[0]!.id,
    ]);
    expect(ids(await list('sku=nothing'))).toEqual([]);
  });

  it('the movements of a hold tell who moved what and why, like a bank statement (R31, R35)', async () => {
    const sku = await service.product([3, 3]);
    const hold = await service.hold({ [sku]: 4 }, { buyer: 'ann' });
    await cancel(hold.id, '', 'failed the fraud check');
    const { body } = await service.get<Page<Movement>>(`/v1/holds/${hold.id}/movements`, {
      key: service.operatorKey,
    });
    const oldestFirst = [...body.items].reverse();
    expect(
      oldestFirst.map(({ type, bin, quantity, from, to }) => [type, bin, quantity, from, to]),
    ).toEqual([
      ['reserve', 'b1', 3, { available: 3, held: 0, sold: 0 }, { available: 0, held: 3, sold: 0 }],
      ['reserve', 'b2', 1, { available: 3, held: 0, sold: 0 }, { available: 2, held: 1, sold: 0 }],
      [
        'release_reservation',
        'b1',
        3,
        { available: 0, held: 3, sold: 0 },
        { available: 3, held: 0, sold: 0 },
      ],
      [
        'release_reservation',
        'b2',
        1,
        { available: 2, held: 1, sold: 0 },
        { available: 3, held: 0, sold: 0 },
      ],
    ]);
    const release = oldestFirst.at(-1)!;
    expect([release.reason, release.actor, release.hold_id, release.bin_version]).toEqual([
      'failed the fraud check',
      'shop:web',
      hold.id,
      3,
    ]);
  });
});

describe('cancelling', () => {
  it('B12: ten cancels at once of 1 of 100 units all answer 200 and give it back once', async () => {
    const sku = await service.product([100]);
    const hold = await service.hold({ [sku]: 1 });
    const answers = await atOnce(10, () => cancel(hold.id));
    expect(statuses(answers)).toEqual({ 200: 10 });
    expect(new Set(answers.map(({ body }) => body.status))).toEqual(new Set(['CANCELLED']));
    expect(await service.counts(sku)).toEqual({ available: 100, held: 0, sold: 0 });
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });

  it(
    `B12: ${20 * rounds} holds of 3 s, each cancelled at the moment of its end, are given back once: ${20 * rounds} units and ${20 * rounds} releases`,
    { timeout: 120_000 },
    async () => {
      const sku = await service.product([100]);
      const answers: Answer<Hold>[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const holds = await atOnce(20, () =>
          service.hold({ [sku]: 1 }, { fields: { hold_seconds: 3 } }),
        );
        const cancels = holds.map(async (hold, index) => {
          const left = Date.parse(hold.expires_at!) - Date.parse(hold.server_time);
          await new Promise((due) => setTimeout(due, left - 100 + index * 10));
          answers.push(await cancel(hold.id));
        });
        await Promise.all(cancels);
        await Promise.all(holds.map(({ id }) => service.becomes(id, endOf(answers, id))));
      }
      const found = statuses(answers);
      expect((found[200] ?? 0) + (found[409] ?? 0)).toBe(20 * rounds);
      const late = answers.filter(({ status }) => status === 409);
      expect(late.every(({ body }) => body.code === 'HOLD_EXPIRED')).toBe(true);
      expect(await service.counts(sku)).toEqual({ available: 100, held: 0, sold: 0 });
      const lines = (await ledgerOf(sku)).filter((line) => line.startsWith('release'));
      expect(lines).toHaveLength(20 * rounds);
    },
  );

  it('B12: of a confirmed hold a cancel is 409 and changes nothing; it is a return', async () => {
    const sku = await service.product([100]);
    const hold = await service.hold({ [sku]: 1 });
    expect((await service.paid(hold.id)).status).toBe(200);
    await service.becomes(hold.id, 'CONFIRMED');
    const refused = await cancel(hold.id);
    expect([refused.status, refused.body.code]).toEqual([409, 'HOLD_ALREADY_CONFIRMED']);
    const extended = await extend(hold.id, 60);
    expect([extended.status, extended.body.code]).toEqual([409, 'HOLD_ALREADY_CONFIRMED']);
    expect(await service.counts(sku)).toEqual({ available: 99, held: 0, sold: 1 });
  });

  it('B12: after a cancel an extension is 409, a payment is to be refunded, and a second cancel changes nothing', async () => {
    const sku = await service.product([100]);
    const hold = await service.hold({ [sku]: 1 });
    await cancel(hold.id);
    const extended = await extend(hold.id, 60);
    expect([extended.status, extended.body.code]).toEqual([409, 'HOLD_ALREADY_CANCELLED']);
    expect((await service.paid(hold.id)).status).toBe(200);
    const again = await cancel(hold.id, '', 'once more');
    expect([again.status, again.body.status, again.body.reason]).toEqual([
      200,
      'CANCELLED',
      'changed my mind',
    ]);
    expect(again.body.payments).toMatchObject([{ settlement: 'REFUND_DUE' }]);
    expect(await service.counts(sku)).toEqual({ available: 100, held: 0, sold: 0 });
    expect(await service.ledger(sku)).toEqual(['reserve 1 b1', 'release_reservation 1 b1']);
  });

  it('a cancel without a reason, or with a blank one, is 422 REASON_REQUIRED and the hold stays', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    for (const body of [{}, { reason: '' }, { reason: '  \n' }, { reason: 5 }, { reason: null }]) {
      const answer = await service.post(`/v1/holds/${hold.id}/cancel`, body);
      expect([answer.status, answer.body.code]).toEqual([422, 'REASON_REQUIRED']);
    }
    expect((await service.get(`/v1/holds/${hold.id}`)).body.status).toBe('HELD');
  });

  it('a cancel of an expired hold is 409 HOLD_EXPIRED', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 }, { fields: { hold_seconds: 1 } });
    await service.becomes(hold.id, 'EXPIRED');
    const answers = [await cancel(hold.id), await extend(hold.id, 10)];
    for (const { status, body } of answers)
      expect([status, body.code]).toEqual([409, 'HOLD_EXPIRED']);
  });

  it('a hold whose workflow was terminated is cancelled all the same: the message starts it again', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    await service.engine.holds.client.workflow.getHandle(hold.workflow_id).terminate('test');
    const answer = await cancel(hold.id);
    expect([answer.status, answer.body.status]).toEqual([200, 'CANCELLED']);
    expect(await service.counts(sku)).toEqual({ available: 1, held: 0, sold: 0 });
  });
});

describe('extending', () => {
  it('300 s move the end by 300 s; the same Idempotency-Key moves it once, a third extension is EXTENSION_LIMIT_REACHED', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const end = Date.parse(hold.expires_at!);
    const key = randomUUID();
    const answers = await atOnce(5, () => extend(hold.id, 300, key));
    for (const { status, body, text } of answers) {
      expect(status, text).toBe(200);
      expect(Date.parse(body.expires_at!)).toBe(end + 300_000);
      expect(body.extensions).toBe(1);
    }
    // B19: the key stands for those seconds, and for no others.
    const other = await extend(hold.id, 301, key);
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    expect((await extend(hold.id, 100)).body.extensions).toBe(2);
    const third = await extend(hold.id, 1);
    expect([third.status, third.body.code]).toEqual([409, 'EXTENSION_LIMIT_REACHED']);
    expect(third.body).toMatchObject({ largest_seconds: 0, max_extensions: 2 });
    expect(Date.parse((await service.get(`/v1/holds/${hold.id}`)).body.expires_at!)).toBe(
      end + 400_000,
    );
  });

  it('past max_hold_seconds it is refused and names the largest that is allowed: 1,200 of 1,800 after 600', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    const refused = await extend(hold.id, 1201);
    expect([refused.status, refused.body.code]).toEqual([409, 'EXTENSION_LIMIT_REACHED']);
    expect(refused.body).toMatchObject({ largest_seconds: 1200 });
    expect(refused.body.detail).toContain('at most 1200 seconds');
    expect((await extend(hold.id, 1200)).status).toBe(200);
  });

  it('B15: a hold whose end has passed is never renewed, whether or not its expiry ran', async () => {
    const sku = await service.product([1]);
    const hold = await service.hold({ [sku]: 1 });
    await service.shop.shiftClock(600_500);
    const answer = await extend(hold.id, 60);
    expect([answer.status, answer.body.code]).toEqual([409, 'HOLD_EXPIRED']);
    await service.hold({ [sku]: 1 });
  });
});

function endOf(answers: Answer<Hold>[], id: string): string {
  return answers.some(({ status, body }) => status === 200 && body.id === id)
    ? 'CANCELLED'
    : 'EXPIRED';
}

/** All pages of a product's ledger. */
async function ledgerOf(sku: string): Promise<string[]> {
  const types: string[] = [];
  let cursor: string | null = null;
  do {
    const after: string = cursor === null ? '' : `&cursor=${cursor}`;
    const answer: Answer<Page<Movement>> = await service.get(
      `/v1/movements?sku=${sku}&limit=100${after}`,
      { key: service.operatorKey },
    );
    types.push(...answer.body.items.map(({ type }) => type));
    cursor = answer.body.next_cursor;
  } while (cursor !== null);
  return types;
}
