import { claim } from '../../../db/claim.js';
import { conflicts } from '../../../db/database.js';
import { describeEachPostgres } from '../../setup/database.js';
import { counts } from '../books.js';
import { call, claimCall, other, said, whenWaiting } from '../rivals.js';
import { bothForms, mutant } from '../wrongForms.js';

describeEachPostgres('attempts of one claim', (version) => {
  const decided = bothForms(version, { connections: { claims: 4, changes: 4 } });

  decided(
    'A14, R08: a repeat of a claim that has run is answered by its hold, also after the deadline',
    async (shop) => {
      const sku = await shop.product([1]);
      const request = await shop.request({ [sku]: 1 });
      const client = await shop.session();
      const first = await said(call(client, ...claimCall(request)));
      await shop.shiftClock(60_000);
      return [first, await said(call(client, ...claimCall(request)))];
    },
    {
      right: ['HELD', 'ALREADY'],
      wrong: [
        [
          {
            name: 'the deadline is looked at first',
            changes: {
              'claim.sql': [
                [
                  '  v_known := known_claim(',
                  `  if tahan_clock() >= p_deadline then return jsonb_build_object('outcome', 'CLAIM_TOO_LATE'); end if;\n  v_known := known_claim(`,
                ],
              ],
            },
          },
          ['HELD', 'CLAIM_TOO_LATE'],
        ],
      ],
    },
  );

  decided(
    'F2, A14: an attempt that was left behind does not take the unit that comes free after its repeat was refused',
    async (shop) => {
      const sku = await shop.product([1]);
      const theirs = await shop.hold({ [sku]: 1 });
      const request = await shop.request({ [sku]: 1 });
      // The repeat has been refused and not committed; the first attempt waits for it.
      const repeat = await other<{ outcome: string }>(shop, ...claimCall(request));
      const zombie = said(call(await shop.session(), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim');
      await call(await shop.session(), `select tahan.cancel($1, 'x', 'buyer') as answer`, [theirs]);
      await repeat.commit();
      return {
        repeat: repeat.answer.outcome,
        zombie: await zombie,
        counts: await counts(shop, sku),
      };
    },
    {
      right: {
        repeat: 'INSUFFICIENT_STOCK',
        zombie: 'INSUFFICIENT_STOCK',
        counts: { available: 1, held: 0, sold: 0, total: 1 },
      },
      wrong: [
        [
          mutant('no tombstone'),
          {
            repeat: 'INSUFFICIENT_STOCK',
            zombie: 'HELD',
            counts: { available: 0, held: 1, sold: 0, total: 1 },
          },
        ],
      ],
    },
  );

  decided(
    'F1, F2, R08: two attempts of one claim at once are one hold: the second waits for the first and answers as it did',
    async (shop) => {
      const sku = await shop.product([2]);
      const request = await shop.request({ [sku]: 1 });
      const first = await other<{ outcome: string }>(shop, ...claimCall(request));
      const second = said(call(await shop.session(), ...claimCall(request)));
      await whenWaiting(shop, 'tahan.claim', 1, second);
      await first.commit();
      return [first.answer.outcome, await second];
    },
    { right: ['HELD', 'ALREADY'], wrong: [[mutant('no lock of the key'), ['HELD', '23505']]] },
  );

  decided(
    'F3: sold out is an answer: one try, no error, and the same claim hears it again',
    async (shop) => {
      const sku = await shop.product([0]);
      const request = await shop.request({ [sku]: 1 });
      const before = conflicts.repeated;
      const answers = [await said(claim(shop.db, request)), await said(claim(shop.db, request))];
      return { answers, repeats: conflicts.repeated - before };
    },
    {
      right: { answers: ['INSUFFICIENT_STOCK', 'INSUFFICIENT_STOCK'], repeats: 0 },
      wrong: [
        [
          {
            name: 'sold out is raised as a conflict',
            changes: {
              'claim.sql': [
                [
                  'return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata, v_answer);',
                  "raise exception 'sold out' using errcode = '40001';",
                ],
              ],
            },
          },
          { answers: ['DATABASE_UNAVAILABLE', 'DATABASE_UNAVAILABLE'], repeats: 6 },
        ],
      ],
    },
  );

  decided(
    'F11, B18: lines of -5 and 6 are not a claim of one',
    async (shop) => {
      const sku = await shop.product([10]);
      const lines = [-5, 6].map((quantity) => ({ sku, quantity }));
      return [await said(shop.claim({}, { lines })), await counts(shop, sku)];
    },
    {
      right: ['22023', { available: 10, held: 0, sold: 0, total: 10 }],
      wrong: [
        [
          {
            name: 'only the sum is looked at',
            changes: { 'claim.sql': [['if v_terms.smallest < 1 then', 'if false then']] },
          },
          ['HELD', { available: 9, held: 1, sold: 0, total: 10 }],
        ],
      ],
    },
  );

  decided(
    'A7, H8: an extension and a count that are repeated while the first attempt still runs happen once',
    async (shop) => {
      const sku = await shop.product([5], { maxHoldSeconds: 900 });
      const hold = await shop.hold({ [sku]: 1 });
      const calls: [string, unknown[]][] = [
        [`select tahan.extend($1, 60, 'same', 'buyer') as answer`, [hold]],
        [`select tahan.adjust($1, 'b1', -1, 'count', 'operator', 'same', null) as answer`, [sku]],
      ];
      const answers: string[] = [];
      for (const [text, values] of calls) {
        const first = await other<{ outcome: string }>(shop, text, values);
        const repeat = said(call(await shop.session(), text, values));
        await whenWaiting(shop, text.slice(0, 19));
        await first.commit();
        answers.push(first.answer.outcome, await repeat);
      }
      const [row] = await shop.query<{ extensions: number }>(
        'select extensions from tahan.holds where id = $1',
        [hold],
      );
      return { answers, extensions: row!.extensions, counts: await counts(shop, sku) };
    },
    {
      right: {
        answers: ['EXTENDED', 'EXTENDED', 'DONE', 'DONE'],
        extensions: 1,
        counts: { available: 3, held: 1, sold: 0, total: 4 },
      },
      wrong: [
        [
          mutant('extend without its request id'),
          {
            answers: ['EXTENDED', 'EXTENDED', 'DONE', 'DONE'],
            extensions: 2,
            counts: { available: 3, held: 1, sold: 0, total: 4 },
          },
        ],
        [
          mutant('adjust without its request id'),
          {
            answers: ['EXTENDED', 'EXTENDED', 'DONE', 'DONE'],
            extensions: 1,
            counts: { available: 2, held: 1, sold: 0, total: 3 },
          },
        ],
      ],
    },
  );
});
