import { setTimeout as pause } from 'node:timers/promises';
import { describeEachPostgres } from '../../setup/database.js';
import { counts } from '../books.js';
import { call, claimCall, otherOnBins, said, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';
import type { WrongForm } from '../wrongForms.js';

const perWait: WrongForm = {
  name: 'each wait gets the whole budget',
  changes: {
    'basics.sql': [
      [
        'foreach v_id in array p_ids loop\n    perform tahan.wait_within(p_budget_ends, p_deadline);\n    perform from tahan.bins',
        'perform tahan.wait_within(p_budget_ends, p_deadline);\n  foreach v_id in array p_ids loop\n    perform from tahan.bins',
      ],
    ],
  },
};
const oneSelect: WrongForm = {
  name: 'one SELECT locks all bins',
  changes: {
    'basics.sql': [
      [
        'foreach v_id in array p_ids loop\n    perform tahan.wait_within(p_budget_ends, p_deadline);\n    perform from tahan.bins b where b.id = v_id for no key update;\n  end loop;',
        `perform tahan.wait_within(p_budget_ends, p_deadline);
         perform from tahan.bins b where b.id = any (p_ids) order by b.sku, b.id for no key update;`,
      ],
    ],
  },
};
const downToZero: WrongForm = {
  name: 'the rest of a budget may come out as 0 ms',
  changes: { 'basics.sql': [['greatest(floor(v_left), 1)', 'greatest(floor(v_left), 0)']] },
};
const noDeadline: WrongForm = {
  name: 'a wait knows only its budget',
  changes: { 'basics.sql': [['if p_deadline is not null then', 'if false then']] },
};
const named = (name: string, to: string): WrongForm => ({
  name,
  changes: {
    'claim.sql': [
      [
        'if v_deadline is not null and v_deadline - tahan_clock() <= v_budget_ends - clock_timestamp() then',
        to,
      ],
    ],
  },
});

describeEachPostgres('how a wait ends', (version) => {
  const decided = bothForms(version);

  decided(
    'R25, A13: the budget of 1 s is for all waits of a call together: with 0.8 s spent on the first of three bins, 0.2 s are left',
    async (shop) => {
      const sku = await shop.product([1, 1, 1]);
      const hold = await shop.hold({ [sku]: 3 });
      const rivals = [await otherOnBins(shop, sku, 'b1'), await otherOnBins(shop, sku, 'b2', 'b3')];
      const client = await shop.session();
      const started = performance.now();
      const cancelling = said(
        call(client, `select tahan.cancel($1, 'x', 'test', 1000) as answer`, [hold]),
      );
      await whenWaiting(shop, 'tahan.cancel');
      await pause(started + 800 - performance.now());
      await rivals[0]!.rollback();
      const answer = await cancelling;
      const ms = performance.now() - started;
      await rivals[1]!.rollback();
      return { answer, within: ms < 1_600, counts: await counts(shop, sku) };
    },
    {
      right: {
        answer: 'gave up',
        within: true,
        counts: { available: 0, held: 3, sold: 0, total: 3 },
      },
      wrong: [
        [
          [perWait, oneSelect],
          {
            answer: 'gave up',
            within: false,
            counts: { available: 0, held: 3, sold: 0, total: 3 },
          },
        ],
      ],
    },
  );

  decided(
    'A13: a budget that is used up leaves 1 ms, never 0, which would wait for ever',
    async (shop) => {
      const client = await shop.session();
      const timeout = async () =>
        (await client.query<{ lock_timeout: string }>('show lock_timeout')).rows[0]!.lock_timeout;
      const seen = [];
      await client.query('begin');
      for (const [budgetMs, deadlineMs] of [
        [0, null],
        [-5_000, null],
        [9_000, 0],
        [9_000, -5_000],
      ]) {
        await client.query(
          `select wait_within(clock_timestamp() + $1 * interval '1 ms', tahan_clock() + $2 * interval '1 ms')`,
          [budgetMs, deadlineMs],
        );
        seen.push(await timeout());
      }
      await client.query('rollback');
      return seen;
    },
    {
      right: ['1ms', '1ms', '1ms', '1ms'],
      wrong: [[downToZero, ['0', '0', '0', '0']]],
    },
  );

  const ends = (which: 'deadline' | 'budget') =>
    which === 'deadline'
      ? { deadlineMs: 500, budgetMs: 2_500 }
      : { deadlineMs: 600_000, budgetMs: 300 };

  for (const which of ['deadline', 'budget'] as const) {
    decided(
      `A13, F8: whichever comes first ends a claim's wait and names it, here its ${which}`,
      async (shop) => {
        const sku = await shop.product([1]);
        const { deadlineMs, budgetMs } = ends(which);
        const blocker = await otherOnBins(shop, sku);
        const client = await shop.session();
        const claimDeadline = await shop.now(deadlineMs);
        const request = await shop.request({ [sku]: 1 }, { claimDeadline });
        const started = performance.now();
        const answer = await said(call(client, ...claimCall(request, budgetMs)));
        const ms = performance.now() - started;
        await blocker.rollback();
        return { answer, within: ms < 1_800 };
      },
      which === 'deadline'
        ? {
            right: { answer: 'CLAIM_TOO_LATE', within: true },
            wrong: [
              [noDeadline, { answer: 'CLAIM_TOO_LATE', within: false }],
              [
                named('every wait ends as somebody else’s lock', 'if false then'),
                { answer: 'gave up', within: true },
              ],
            ],
          }
        : {
            right: { answer: 'gave up', within: true },
            wrong: [
              [
                named(
                  'every wait of a claim ends as its deadline',
                  'if v_deadline is not null then',
                ),
                { answer: 'CLAIM_TOO_LATE', within: true },
              ],
            ],
          },
    );
  }

  decided(
    'F4, A14: a claim that gets its locks after its deadline takes nothing, although nobody made it wait too long for one',
    async (shop) => {
      const sku = await shop.product([1]);
      const blocker = await otherOnBins(shop, sku);
      const claiming = said(shop.claim({ [sku]: 1 }));
      await whenWaiting(shop, 'tahan.claim');
      await shop.shiftClock(4_000);
      await blocker.rollback();
      return { claim: await claiming, counts: await counts(shop, sku) };
    },
    {
      right: {
        claim: 'CLAIM_TOO_LATE',
        counts: { available: 1, held: 0, sold: 0, total: 1 },
      },
      wrong: [
        [
          [
            mutant('no deadline after the locks'),
            {
              name: 'the clock of the transaction, which stands still',
              changes: {
                'claim.sql': [['v_now := greatest(v_now, tahan_clock());', 'v_now := now();']],
              },
            },
          ],
          { claim: 'HELD', counts: { available: 0, held: 1, sold: 0, total: 1 } },
        ],
      ],
    },
  );

  decided<boolean | string>(
    'F4, A14: a hold of 5 s that waited a minute for its locks is born with all of its time',
    async (shop) => {
      const sku = await shop.product([1]);
      const blocker = await otherOnBins(shop, sku);
      const claimDeadline = await shop.now(600_000);
      const claiming = shop.claim({ [sku]: 1 }, { holdSeconds: 5, claimDeadline });
      await whenWaiting(shop, 'tahan.claim');
      await shop.shiftClock(60_000);
      await blocker.rollback();
      const answer = await claiming;
      if (answer.outcome !== 'HELD') return answer.outcome;
      return answer.remainingMs === 1 ? 'overdue' : answer.remainingMs > 4_000;
    },
    {
      right: true,
      wrong: [
        [
          {
            name: 'the end counts from before the waits',
            changes: {
              'claim.sql': [['v_now := greatest(v_now, tahan_clock());', 'v_now := now();']],
            },
          },
          'overdue',
        ],
      ],
    },
  );
});
