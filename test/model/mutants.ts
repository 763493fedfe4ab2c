import { readFileSync } from 'node:fs';
import pg from 'pg';

/** One wrong form of the SQL: what a hurried hand might write in place of what stands there. */
export interface Mutant {
  name: string;
  /** Its refusal is true for an instant of the call, so no history can call it false: only the stepped test does. */
  stepped?: true;
  file: string;
  /** Each text must stand in the file exactly once, so that a mutant can't quietly become none. */
  changes: [from: string, to: string][];
}

export const mutants: Mutant[] = [
  {
    name: 'reclaim with SKIP LOCKED',
    file: 'claim.sql',
    changes: [
      [
        'perform lock_holds(v_overdue, p_budget_ends, p_deadline);',
        `select coalesce(array_agg(s.id order by s.id), '{}') into v_overdue from (
           select h.id from holds h where h.id = any (v_overdue) order by h.id for no key update skip locked) s;`,
      ],
      [
        "if cardinality(overdue_holds(v_short, null, null, v_now, 1)) > 0 then\n      return jsonb_build_object('outcome', 'MORE_OVERDUE');",
        "if cardinality(overdue_holds(v_short, null, null, v_now, 1)) > 0 and p_batch < 2048 then\n      return jsonb_build_object('outcome', 'MORE_OVERDUE');",
      ],
    ],
  },
  {
    name: 'no second try for stock',
    file: 'claim.sql',
    changes: [
      ['if cardinality(overdue_holds(v_short, null, null, v_now, 1)) > 0 then', 'if false then'],
    ],
  },
  {
    name: 'no second try for the limit',
    stepped: true,
    file: 'claim.sql',
    changes: [
      [
        'if cardinality(overdue_holds(null, p_buyer_id, v_over, v_now, 1)) > 0 then',
        'if false then',
      ],
    ],
  },
  {
    name: 'the quick pass keeps its locks',
    file: 'claim.sql',
    changes: [
      [
        "if v_bins is null then\n      return jsonb_build_object('outcome', 'NO_BIN');\n    end if;",
        '',
      ],
    ],
  },
  {
    name: 'expire reads the payment in the locking statement',
    file: 'expire.sql',
    changes: [
      [
        'perform lock_holds(array[p_hold_id], v_budget_ends, null);',
        `perform wait_within(v_budget_ends, null);
         select (select jsonb_build_object('provider', p.provider, 'paymentId', p.payment_id) from payments p
           where p.hold_id = h.id and p.status = 'succeeded' and p.in_time and p.settlement is null limit 1)
         into v_pending from holds h where h.id = p_hold_id for no key update;`,
      ],
      ['v_pending := pending_payment(p_hold_id);', ''],
    ],
  },
  {
    name: 'expire decides before the lock',
    file: 'expire.sql',
    changes: [
      [
        'perform lock_holds(array[p_hold_id], v_budget_ends, null);',
        'v_pending := pending_payment(p_hold_id);\n  perform lock_holds(array[p_hold_id], v_budget_ends, null);',
      ],
      ['  v_pending := pending_payment(p_hold_id);\n  if v_pending', '  if v_pending'],
    ],
  },
  {
    name: 'no lock of the buyer',
    file: 'claim.sql',
    changes: [['perform pg_advisory_xact_lock(buyer_lock(p_buyer_id));', '']],
  },
  {
    name: 'bins not locked',
    file: 'basics.sql',
    changes: [['perform from tahan.bins b where b.id = v_id for no key update;', '']],
  },
  {
    name: 'bins locked in the wrong order',
    file: 'claim.sql',
    changes: [
      [
        'from bins b where b.sku = any (p_skus) order by b.sku, b.id\n',
        'from bins b where b.sku = any (p_skus) order by hashint8extended(b.id, hashtextextended(p_hold_id::text, 0))\n',
      ],
    ],
  },
  {
    name: 'reclaim does not look again',
    file: 'claim.sql',
    changes: [
      [
        "where h.id = any (v_overdue) and h.status = 'HELD' and h.expires_at <= v_now\n        and pending_payment(h.id) is null;",
        "where h.id = any (v_overdue) and h.status = 'HELD';",
      ],
    ],
  },
  {
    name: 'a second reclaim with the bins still locked',
    file: 'claim.sql',
    changes: [
      [
        "      -- Whatever else it says, it must leave no stock change, no ledger row and no lock.\n      raise exception using errcode = 'TH904';",
        "      if v_answer ->> 'outcome' <> 'MORE_OVERDUE' then\n        raise exception using errcode = 'TH904';\n      end if;",
      ],
    ],
  },
  {
    name: 'expire without a look at the status',
    file: 'expire.sql',
    changes: [["if v_hold.status <> 'HELD' then", 'if false then']],
  },
  {
    name: 'late acceptance without the limit',
    file: 'confirm.sql',
    changes: [
      [
        'if tahan.over_limit(p_hold.buyer_id, v_skus, v_quantities) is not null then',
        'if false then',
      ],
    ],
  },
  {
    name: 'late acceptance under every policy',
    file: 'confirm.sql',
    changes: [["elsif v_hold.late_payment <> 'accept_if_available' then", 'elsif false then']],
  },
  {
    name: 'a late payment overtakes a pending one',
    file: 'confirm.sql',
    changes: [
      [
        "    if v_pending is not null then\n      return jsonb_build_object('outcome', 'PAYMENT_PENDING', 'payment', v_pending);\n    elsif",
        '    if',
      ],
    ],
  },
  {
    name: 'record_payment reads the clock after the lock',
    file: 'record_payment.sql',
    changes: [
      [
        '  perform lock_holds(array[v_hold.id], v_budget_ends, null);\n',
        '  perform lock_holds(array[v_hold.id], v_budget_ends, null);\n  v_began := tahan_clock();\n',
      ],
    ],
  },
  {
    name: 'record_payment keeps the first stamp of a failed payment',
    file: 'record_payment.sql',
    changes: [
      [
        "  if not found then\n    v_outcome := 'DUPLICATE';",
        "  if found then\n    update payments p set received_at = v_began where p.provider = p_provider and p.payment_id = p_payment_id;\n  else\n    v_outcome := 'DUPLICATE';",
      ],
      ['v_payment.received_at := v_began;', 'v_began := v_payment.received_at;'],
    ],
  },
  {
    name: 'a wrong amount stays pending',
    file: 'record_payment.sql',
    changes: [['if does_not_fit(v_hold.id, p_amount_minor, p_currency) then', 'if false then']],
  },
  {
    name: 'cancel gives a paid hold away',
    file: 'cancel.sql',
    changes: [['if v_pending is not null then', 'if false then']],
  },
  {
    name: 'confirm trusts a status read before the lock',
    file: 'confirm.sql',
    changes: [
      [
        '  perform lock_holds(array[p_hold_id], v_budget_ends, null);\n  select h.* into v_hold from holds h where h.id = p_hold_id;\n',
        '  perform lock_holds(array[p_hold_id], v_budget_ends, null);\n',
      ],
    ],
  },
  {
    name: 'extend without its request id',
    file: 'extend.sql',
    changes: [
      [
        "  if v_known is not null and (v_known ->> 'outcome' = 'LIMIT' or v_hold.status = 'HELD') then",
        '  if false then',
      ],
      ['v_answer, v_now);', 'v_answer, v_now) on conflict do nothing;'],
    ],
  },
  {
    name: 'extend renews an overdue hold',
    file: 'extend.sql',
    changes: [['if v_hold.expires_at <= v_now then', 'if false then']],
  },
  {
    name: 'adjust without its request id',
    file: 'stock.sql',
    changes: [
      ['where r.scope = v_scope and r.request_id = p_request_id;', 'where false;'],
      ['v_request, v_answer, v_now);', 'v_request, v_answer, v_now) on conflict do nothing;'],
    ],
  },
  {
    name: 'no tombstone',
    file: 'claim.sql',
    changes: [
      [
        'return reject_claim(p_hold_id, p_buyer_id, p_key, p_request_hash, p_metadata, v_answer);',
        "return v_answer || jsonb_build_object('requestHash', p_request_hash);",
      ],
    ],
  },
  {
    name: 'no deadline after the locks',
    file: 'claim.sql',
    changes: [['if v_now >= p_deadline then', 'if false then']],
  },
  {
    name: 'no lock of the key',
    file: 'claim.sql',
    changes: [['perform pg_advisory_xact_lock(key_lock(p_hold_id));', '']],
  },
  {
    name: 'the safety stock is sold too',
    file: 'claim.sql',
    changes: [
      [
        'select b.id, b.sku, b.available - b.safety_stock as sellable',
        'select b.id, b.sku, b.available as sellable',
      ],
      [
        'b.id = any (v_bins) and b.available > b.safety_stock',
        'b.id = any (v_bins) and b.available > 0',
      ],
    ],
  },
];

/** Puts a mutant's functions in place of the real ones. */
export async function applyMutant(url: string, { name, file, changes }: Mutant): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(changedFunctions(name, file, changes)).finally(() => client.end());
}

/** Those functions of a file that the changes touch, in their changed form, and no other. */
export function changedFunctions(name: string, file: string, changes: Mutant['changes']): string {
  const text = readFileSync(new URL(`../../db/functions/${file}`, import.meta.url), 'utf8');
  const functions = text.split(/^(?=create or replace function )/m);
  const touched = new Set<number>();
  for (const [from, to] of changes) {
    const found = functions.flatMap((each, at) => (each.includes(from) ? [at] : []));
    const [at] = found;
    if (at === undefined || found.length > 1 || functions[at]!.split(from).length !== 2) {
      throw new Error(`mutant "${name}": not exactly once in ${file}: ${from}`);
    }
    functions[at] = functions[at]!.replace(from, () => to);
    touched.add(at);
  }
  return [...touched].map((at) => functions[at]).join('\n');
}
