import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { root } from '../../cli/root.js';

/** The statements of the SQL functions, without comments, each on one line. */
function statementsOf(text: string): string[] {
  return text
    .replace(/--.*$/gm, '')
    .split(/;|\bthen\b|\bloop\b|\bbegin\b/)
    .map((statement) => statement.replace(/\s+/g, ' ').trim());
}

/** One row by its key, nothing else that a rival could change, in a statement of its own (A1, A3, F48). */
const byKey =
  /^perform from (tahan\.)?(holds|bins|products|buyer_rules) (\w) where \3\.(id = v_id|sku = p_sku collate "C"|only_one) for no key update$/;

/** Holds by their ids, as far as nobody has locked them: it waits for none, and whoever is left out is asked alone. */
const freeHolds =
  /\( select h\.id from tahan\.holds h where h\.id = any \(p_ids\) order by h\.id for no key update skip locked \)/;

/** What locks rows otherwise. The quick pass of `spread` skips what is locked, and lets its locks go. */
function offends(statement: string): boolean {
  return (
    /\bfor (no key )?(update|share|key share)\b/i.test(statement) &&
    !byKey.test(statement) &&
    !freeHolds.test(statement) &&
    !/order by hashint8extended.* limit 1 for no key update skip locked$/.test(statement)
  );
}

const folder = join(root, 'db/functions');
const functions = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'));

it('F48, A1, A3: a statement that waits for a row locks it by its id: no condition, join, order or limit stands beside it', () => {
  const statements = functions.flatMap(statementsOf);
  expect(statements.filter(offends)).toEqual([]);
  expect(statements.filter((statement) => byKey.test(statement))).toHaveLength(4);
  expect(statements.filter((statement) => freeHolds.test(statement))).toHaveLength(1);

  const lock = 'perform from tahan.bins b where b.id = v_id for no key update';
  const wrong = [
    lock.replace('= v_id', '= any (v_ids)'),
    lock.replace(' for', ' and b.available > 0 for'),
    lock.replace('no key update', 'update'),
    lock.replace('tahan.bins b', 'tahan.bins b join tahan.products p using (sku)'),
    `${lock} skip locked`,
  ];
  expect(wrong.map((each) => offends(each.trim()))).toEqual(wrong.map(() => true));
});

it('F48: no lock is left out on a condition but these: the quick pass has its bin, the late policy, the limit, the rule about open holds, whose units a hold sells, an operator who accepts, and an order without lines', () => {
  const guarded = functions
    .flatMap((text) =>
      [...text.replace(/--.*$/gm, '').matchAll(/\bif ([^;]*?) then\s([\s\S]*?)end if/g)].filter(
        ([, , body]) => /pg_advisory_xact_lock|lock_holds|lock_bins|lock_cart/.test(body!),
      ),
    )
    .map(([, condition]) => condition!.replace(/\s+/g, ' '))
    .sort();
  expect(guarded).toEqual([
    "p_decision = 'accept'",
    'v_bins is null',
    'v_buyer is not null',
    'v_from_cart',
    "v_hold.late_payment = 'accept_if_available'",
    "v_hold.status = 'EXPIRED' and not take_again(v_hold, v_budget_ends)",
    'v_terms.limited',
  ]);
});

it('A1, F48: a hold or a bin is changed by its id, under a lock that its caller holds: no condition decides which row', () => {
  const conditions = functions.flatMap((text) =>
    [
      ...text.matchAll(
        /\bupdate (?:tahan\.)?(?:holds|bins) \w\s+set[^;]*?\bwhere ([^;]*?)(?:\s+returning|;|\s+\))/g,
      ),
    ].map(([, condition]) => condition!),
  );
  expect(conditions).toHaveLength(10);
  // give_back and end_together refuse a hold that is not HELD: by an error, not by finding nothing.
  const byId = /^\w\.id = [\w.]+( and h\.status = 'HELD')?$/;
  expect(conditions.filter((condition) => !byId.test(condition))).toEqual([]);
});
