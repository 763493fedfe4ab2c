import { describe, expect, it } from 'vitest';
import type { Activities } from '../../activities/index.js';
import { Turns, inTurn } from '../../activities/turns.js';

/** At a clock that stands still unless it is moved. */
function turns(perSecond: number) {
  const clock = { ms: 1_000_000_000_000 };
  const book = new Turns(perSecond, () => clock.ms);
  let holds = 0;
  const take = (remainingMs: number, holdId = `hold-${(holds += 1)}`) =>
    book.take(holdId, remainingMs);
  return { clock, book, take };
}

/** How many of them fall into each second after the first one's. */
function perSecond(times: number[], from: number): number[] {
  const counts: number[] = [];
  for (const at of times) {
    const second = Math.floor((at - from) / 1000);
    counts[second] = (counts[second] ?? 0) + 1;
  }
  return counts;
}

describe('Turns', () => {
  it('F13: a hold that ends alone is looked at when it ends', () => {
    const { take } = turns(20);
    expect(take(600_000)).toBe(600_000);
    expect(take(601_234.5)).toBe(601_234.5);
  });

  it('F13, F35: 1,000 that end at once get 20 turns a second from a second later on, none before the end, in the order of their claims', () => {
    const { take } = turns(20);
    const given = Array.from({ length: 1000 }, () => take(600_000));
    expect(Math.min(...given)).toBe(600_000);
    expect(given).toEqual([...given].sort((a, b) => a - b));
    // The second in which buyers come for their units is left to these.
    expect(perSecond(given, 600_000)).toEqual([2, ...Array.from({ length: 49 }, () => 20), 18]);
  });

  it('F13: others that end meanwhile fill what is free, and wait for no turn that is later than theirs', () => {
    const { take } = turns(10);
    for (let i = 0; i < 21; i += 1) take(600_000);
    // The two seconds from 601 s on are full.
    for (const free of [599_500, 600_500, 603_500]) expect(take(free)).toBe(free);
    expect(take(600_000)).toBe(603_000);
    expect(take(602_500)).toBe(603_600);
  });

  it('F13: where 200 claims a second are made, 50 ends a second are looked at', () => {
    const { take, clock, book } = turns(20);
    for (let i = 0; i < 200; i += 1) {
      clock.ms += 5;
      book.claimed();
    }
    const given = Array.from({ length: 500 }, () => take(600_000));
    expect(perSecond(given, 600_000)).toEqual([5, ...Array.from({ length: 9 }, () => 50), 45]);
  });

  it('F13: paces between whole turns of a slot are kept: 5 a second are not 10, and 25 not 30', () => {
    for (const pace of [1, 5, 25]) {
      const { take } = turns(pace);
      const given = Array.from({ length: 20 * pace }, () => take(600_000));
      expect(perSecond(given, 601_000).slice(0, 18), `${pace}`).toEqual(Array(18).fill(pace));
    }
  });

  it('F13: one hold in each tenth of a second is on time, however slow the pace is', () => {
    const { take } = turns(1);
    for (let at = 600_000; at < 602_000; at += 100) expect(take(at)).toBe(at);
  });

  it('F13: a turn is given back once', () => {
    const { take, book } = turns(10);
    take(600_000, 'first');
    book.giveBack('first');
    book.giveBack('first');
    expect([take(600_000), take(600_000)]).toEqual([600_000, 601_000]);
  });

  it('F12: an answer without a time gets no turn', async () => {
    const { book } = turns(1);
    const answer = { outcome: 'HELD', remainingMs: undefined };
    const claim = () => Promise.resolve(answer);
    const shop = inTurn({ claim } as unknown as Activities, book);
    for (const holdId of ['a', 'b', 'c'])
      expect(await shop.claim({ holdId } as Parameters<Activities['claim']>[0])).toBe(answer);
  });

  it('F35: a pace that claims had a second ago is no pace for ends', () => {
    const { take, clock, book } = turns(20);
    for (let i = 0; i < 400; i += 1) book.claimed();
    clock.ms += 1000;
    const given = Array.from({ length: 200 }, () => take(600_000));
    expect(perSecond(given, 600_000)).toEqual([2, ...Array.from({ length: 9 }, () => 20), 18]);
  });

  it('R51: 100 claims a second for ten minutes, nine of ten paid within 10 s: the others are looked at within 50 s of their end', () => {
    const { take, clock, book } = turns(20);
    const late: number[] = [];
    const claims = 60_000;
    for (let i = 0; i < claims; i += 1) {
      clock.ms += 10;
      book.claimed();
      const delay = take(600_000, `hold-${i}`) - 600_000;
      if (i % 10 === 0) late.push(delay);
      const paid = i - 1000;
      if (paid % 10 !== 0) book.giveBack(`hold-${paid}`);
    }
    expect(late).toHaveLength(claims / 10);
    expect(Math.max(...late)).toBeLessThan(50_000);
  });

  it('F13: a hold that is extended, or claimed again, has one turn and not two', () => {
    const { take } = turns(10);
    take(600_000, 'first');
    take(600_000, 'first');
    expect(take(600_000, 'second')).toBe(601_000);
    take(900_000, 'second');
    expect(take(600_150, 'third')).toBe(600_150);
  });

  it('S10: a turn is found at once, behind 100,000 others too', () => {
    const { take } = turns(20);
    const began = performance.now();
    for (let i = 0; i < 99_999; i += 1) take(600_000);
    expect(take(600_000)).toBe(601_000 + 99_997 * 50 - 50);
    expect(performance.now() - began).toBeLessThan(5000);
  });

  it('S10: turns that have passed are forgotten', () => {
    const { take, clock, book } = turns(20);
    for (let i = 0; i < 5000; i += 1) {
      take(1000);
      clock.ms += 100;
    }
    expect(book.kept).toBeLessThan(400);
  });
});

describe('inTurn', () => {
  const answers: Record<string, unknown> = {};
  const activities = (book: Turns) =>
    inTurn(
      Object.fromEntries(
        ['claim', 'extend', 'confirm', 'cancel'].map((name) => [
          name,
          () => Promise.resolve(answers[name]),
        ]),
      ) as unknown as Activities,
      book,
    );
  const asked = (holdId: string) => ({ holdId }) as Parameters<Activities['claim']>[0];
  const remainingMs = 60_000;
  const held = { outcome: 'HELD', remainingMs };

  it('F13: every answer that gives a hold its time says its turn, and no other one does', async () => {
    const shop = activities(turns(10).book);
    answers['claim'] = held;
    expect(await shop.claim(asked('a'))).toEqual({ ...held, turnInMs: 60_000 });
    answers['claim'] = { outcome: 'ALREADY', status: 'HELD', remainingMs };
    expect(await shop.claim(asked('b'))).toEqual({
      ...(answers['claim'] as object),
      turnInMs: 61_000,
    });
    answers['extend'] = { outcome: 'EXTENDED', remainingMs };
    expect(await shop.extend('c', 60, 'request', 'shop')).toMatchObject({ turnInMs: 61_100 });

    for (const other of [
      { outcome: 'ALREADY', status: 'CONFIRMED', remainingMs },
      { outcome: 'INSUFFICIENT_STOCK', shortfalls: [] },
      { outcome: 'CLAIM_TOO_LATE' },
    ]) {
      answers['claim'] = other;
      expect(await shop.claim(asked('d'))).toEqual(other);
    }
    answers['extend'] = { outcome: 'ALREADY', status: 'EXPIRED' };
    expect(await shop.extend('d', 60, 'request', 'shop')).toEqual(answers['extend']);
  });

  it('F13: ends are looked at by the pace of claims that took units, and of no others', async () => {
    const { book, take } = turns(10);
    const shop = activities(book);
    for (const answer of [held, { outcome: 'INSUFFICIENT_STOCK', shortfalls: [] }]) {
      answers['claim'] = answer;
      for (let i = 0; i < 120; i += 1) await shop.claim(asked(`hold-${i}`));
    }
    const given = Array.from({ length: 4 }, () => take(600_000));
    expect(given).toEqual([600_000, 600_000, 600_000, 601_000]);
  });

  it('F13: a hold that is paid or cancelled gives its turn back, and one that is neither keeps it', async () => {
    for (const [name, outcome, next] of [
      ['confirm', 'CONFIRMED', 60_050],
      ['confirm', 'PAYMENT_PENDING', 61_000],
      ['cancel', 'CANCELLED', 60_050],
      ['cancel', 'PAYMENT_PENDING', 61_000],
    ] as const) {
      const { book, take } = turns(10);
      const shop = activities(book);
      answers['claim'] = held;
      await shop.claim(asked('a'));
      answers[name] = { outcome };
      const answer =
        name === 'confirm'
          ? await shop.confirm('a', { provider: 'fake', paymentId: 'p1' })
          : await shop.cancel('a', 'no longer wanted', 'shop');
      expect(answer).toEqual({ outcome });
      expect(take(60_050), `${name} ${outcome}`).toBe(next);
    }
  });
});
