import { afterEach, describe, expect, it } from 'vitest';
import { verify } from '../../api/payments.js';
import type { Charge } from '../../cli/sandbox/book.js';
import type { Answer, Heard } from './recorder.js';
import {
  api,
  charge,
  closeAll,
  delivered,
  events,
  holdId,
  idOf,
  post,
  read,
  secret,
  start,
  taken,
} from './sandboxed.js';

afterEach(closeAll);

describe('the sandbox delivers webhooks as a payment provider does', () => {
  it('B09: signed for the API, and repeated through 404, 503 and a lost connection until it says 200', async () => {
    const answers: Answer[] = [
      { status: 404, body: { code: 'HOLD_NOT_FOUND' } },
      { status: 503 },
      'cut',
    ];
    const server = await api(() => answers.shift() ?? taken);
    const sandbox = await start(server);
    const [charged] = await charge(sandbox);
    const [event] = await delivered(sandbox);
    expect(event!.tries.map(({ status, answer }) => `${status} ${answer}`)).toEqual([
      '404 HOLD_NOT_FOUND',
      '503 ',
      expect.stringMatching(/^null /),
      '200 RECORDED',
    ]);
    expect(server.heard).toHaveLength(4);
    expect(new Set(server.heard.map(idOf)).size).toBe(1);
    for (const heard of server.heard)
      expect(read(heard)).toMatchObject({
        type: 'payment.succeeded',
        data: {
          payment_id: charged!.payment_id,
          hold_id: holdId,
          amount_minor: 2500,
          currency: 'EUR',
        },
      });
    const at = event!.tries.map((one) => Date.parse(one.at));
    // Doubling: no pause is shorter than asked for, by the millisecond that clocks round away.
    [20, 40, 80].forEach((pause, index) =>
      expect(at[index + 1]! - at[index]!).toBeGreaterThanOrEqual(pause - 2),
    );
  });

  it('gives up when its time is over, or at once when it never repeats', async () => {
    const server = await api(() => ({ status: 503 }));
    const sandbox = await start(server, {
      behaviour: { webhooks: { first_pause_ms: 20, span_ms: 200 } },
    });
    await charge(sandbox);
    await charge(sandbox, { never_repeats: true });
    const [first, second] = await delivered(sandbox);
    expect([first!.state, second!.state]).toEqual(['given_up', 'given_up']);
    expect(first!.tries).toHaveLength(4); // 20, 40 and 80 ms fit into 200, 160 more do not
    expect(second!.tries).toHaveLength(1);
  });

  it('B07: duplicates: the same event five times at the same moment', async () => {
    let arrived = 0;
    let all!: () => void;
    const together = new Promise<void>((resolve) => (all = resolve));
    const server = await api(async () => {
      if (++arrived === 5) all();
      await together; // none is answered before all are there
      return taken;
    });
    const sandbox = await start(server);
    await charge(sandbox, { copies: 5 });
    await delivered(sandbox);
    expect(server.heard).toHaveLength(5);
    expect(new Set(server.heard.map(idOf)).size).toBe(1);
    expect(new Set(server.heard.map(({ raw }) => raw.toString())).size).toBe(1);
  });

  it.each([
    ['fail', ['failed'], 'failed'],
    ['fail_then_succeed', ['failed', 'succeeded'], 'succeeded'],
    ['succeed_then_fail', ['succeeded', 'failed'], 'succeeded'],
    ['refund_then_succeed', ['refunded', 'succeeded'], 'succeeded'],
  ])('F22: %s, each waits until the one before was taken', async (story, order, status) => {
    let left = 2;
    const server = await api(() => (left-- > 0 ? { status: 503 } : taken));
    const sandbox = await start(server);
    const [charged] = await charge(sandbox, { story });
    await delivered(sandbox);
    const heard = server.heard.map((one) => read(one));
    expect(heard.slice(2).map(({ type }) => type)).toEqual(order.map((word) => `payment.${word}`));
    expect(heard[0]!.type).toBe(`payment.${order[0]}`);
    expect(new Set(heard.map(({ data }) => data.payment_id))).toEqual(
      new Set([charged!.payment_id]),
    );
    expect(charged!.status).toBe(status);
    // What came first in the world has the earlier time, in whatever order it is told.
    const told = (word: string) => heard.find(({ type }) => type === `payment.${word}`)!.timestamp;
    if (story === 'succeed_then_fail') expect(told('failed') < told('succeeded')).toBe(true);
    if (story === 'refund_then_succeed') {
      expect(told('succeeded') < told('refunded')).toBe(true);
      expect(sandbox.book.refundsOf(charged!.payment_id)).toMatchObject([
        { key: null, amount_minor: 2500 },
      ]);
    }
  });

  it('F23, F25: the order’s price, a wrong amount, a wrong currency, and two payments for one hold', async () => {
    const total = { amount_minor: 7900, currency: 'CHF' };
    const order = { status: 'pending_payment', total };
    const server = await api(undefined, (path) =>
      path.startsWith('/v1/orders/')
        ? { status: 200, body: order }
        : { status: 200, body: { status: 'HELD', order_number: 'ORDER1' } },
    );
    const sandbox = await start(server, { shopKey: 'shop-key' });
    const price = async (asked: object) => {
      const [{ payment_id, amount_minor, currency }] = (await charge(sandbox, asked)) as [Charge];
      await delivered(sandbox);
      const told = events(server.heard)
        .map((one) => read(one))
        .find(({ data }) => data.payment_id === payment_id)!;
      expect(told.data).toMatchObject({ amount_minor, currency });
      return `${amount_minor} ${currency}`;
    };
    expect(await price({})).toBe('7900 CHF');
    expect(await price({ wrong_amount: true })).toBe('7899 CHF');
    expect(await price({ wrong_currency: true })).toBe('7900 USD');
    expect(await price({ amount_minor: 5, currency: 'VND' })).toBe('5 VND');
    expect(await price({ hold_id: undefined, order_number: 'ORDER1' })).toBe('7900 CHF');
    const twice = await charge(sandbox, { payments: 2 });
    expect(new Set(twice.map(({ payment_id }) => payment_id)).size).toBe(2);
  });

  it('S1: one bad signature and then a good one, or only bad ones', async () => {
    const check = (heard: Heard): Answer => {
      try {
        verify(heard.raw, heard.rawHeaders, [secret]);
        return taken;
      } catch {
        return { status: 401, body: { code: 'SIGNATURE_INVALID' } };
      }
    };
    const server = await api(check);
    const sandbox = await start(server, {
      behaviour: { webhooks: { first_pause_ms: 10, span_ms: 40 } },
    });
    await charge(sandbox, { bad_signature: 'once' });
    await delivered(sandbox);
    read(server.heard[0]!, { signed: false });
    read(server.heard[1]!);
    await charge(sandbox, { bad_signature: 'always' });
    const [once, always] = await delivered(sandbox);
    expect(once).toMatchObject({
      state: 'delivered',
      tries: [{ status: 401, signed: 'badly' }, { status: 200 }],
    });
    expect(always!.state).toBe('given_up');
    for (const heard of server.heard.slice(2)) read(heard, { signed: false });
  });

  it('F17: late means that the hold is over, also when its buyer has extended it meanwhile', async () => {
    let looks = 0;
    const now = Date.now();
    const body = (status: string) => ({
      status,
      server_time: new Date(now).toISOString(),
      expires_at: new Date(now + 50).toISOString(),
    });
    const over = () => looks > 3;
    let toldWhenOver: boolean | undefined;
    const server = await api(
      () => {
        toldWhenOver = over();
        return taken;
      },
      () => ({ status: 200, body: body(++looks > 3 ? 'EXPIRED' : 'HELD') }),
    );
    const sandbox = await start(server, { shopKey: 'shop-key' });
    await charge(sandbox, { late: true });
    await delivered(sandbox);
    expect(toldWhenOver).toBe(true);
    expect(looks).toBe(4);
    const blind = await start(server);
    expect(await post(blind, '/charges', { hold_id: holdId, late: true })).toMatchObject({
      status: 422,
      body: { code: 'hold_unknown' },
    });
  });

  it('later, and slowly: after a while, and with a pause in the middle of the body', async () => {
    const server = await api();
    const sandbox = await start(server);
    await charge(sandbox, { after_ms: 150, slow_ms: 200 });
    const [event] = await delivered(sandbox);
    const [heard] = server.heard;
    read(heard!);
    expect(heard!.headers['transfer-encoding']).toBe('chunked');
    expect(heard!.at - Date.parse(event!.tries[0]!.at)).toBeGreaterThanOrEqual(195);
    const { created_at } = [...sandbox.book.charges.values()][0]!;
    expect(Date.parse(event!.tries[0]!.at) - Date.parse(created_at)).toBeGreaterThanOrEqual(145);
  });
});
