import pg from 'pg';
import type { Book, Charge } from '../../cli/sandbox/book.js';
import { audit } from '../db/audit.js';

/** What Postgres says about one payment and its hold. */
interface Row {
  payment_id: string;
  status: string;
  settlement: string | null;
  settlement_reason: string | null;
  hold_id: string;
  hold_status: string;
  owner: string | null;
  amount_minor: number;
  total_minor: number | null;
  /** State and amount of each row in `refunds`. */
  refunds: { state: string; amount: number }[];
}

export interface Verdict {
  payments: number;
  confirmed: number;
  acceptedLate: number;
  refunded: number;
  mismatched: number;
  /** The sender told of them once, was not answered 2xx, and never came back. */
  neverHeard: number;
  /** One sentence for each thing that is wrong. */
  wrong: string[];
}

/** Holds the provider's own book against Postgres, charge by charge. */
export async function judge(url: string, book: Book): Promise<Verdict> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const rows = new Map((await paymentRows(client)).map((row) => [row.payment_id, row]));
    const verdict: Verdict = {
      payments: book.charges.size,
      confirmed: 0,
      acceptedLate: 0,
      refunded: 0,
      mismatched: 0,
      neverHeard: 0,
      wrong: [],
    };
    for (const charge of book.charges.values())
      judgeOne(charge, rows.get(charge.payment_id), book, verdict);
    for (const id of rows.keys())
      if (!book.charges.has(id)) verdict.wrong.push(`${id}: the provider knows no such payment`);
    await holdsAndUnits(client, verdict);
    for (const [rule, found] of Object.entries(await audit(url)))
      verdict.wrong.push(`${rule}: not so for ${JSON.stringify(found)}`);
    return verdict;
  } finally {
    await client.end();
  }
}

function judgeOne(charge: Charge, row: Row | undefined, book: Book, verdict: Verdict): void {
  const { payment_id: id } = charge;
  const wrong = (what: string) => void verdict.wrong.push(`${id}: ${what}`);
  const back = book.refundsOf(id);
  if (row === undefined || row.status !== 'succeeded') {
    if (taken(book, id)) wrong('the API has taken it, but it is not recorded as succeeded');
    if (back.length > 0) wrong('refunded, but not recorded as succeeded');
    verdict.neverHeard += 1;
    return;
  }
  const owns = row.settlement === 'APPLIED' || row.settlement === 'ACCEPTED_LATE';
  if (owns) {
    if (row.hold_status !== 'CONFIRMED' || row.owner !== id)
      wrong(`${row.settlement}, but its hold is ${row.hold_status}, owned by ${row.owner}`);
    if (back.length > 0)
      wrong(`both: ${row.settlement}, and ${back.length} refunds at the provider`);
    if (row.refunds.length > 0) wrong(`both: ${row.settlement}, and a refund in Postgres`);
    if (row.total_minor !== null && row.total_minor !== charge.amount_minor)
      wrong(`${charge.amount_minor} paid an order of ${row.total_minor}`);
    verdict[row.settlement === 'APPLIED' ? 'confirmed' : 'acceptedLate'] += 1;
    return;
  }
  if (row.settlement !== 'REFUNDED') return wrong(`neither: ${row.settlement ?? 'no settlement'}`);
  if (back.length !== 1) wrong(`REFUNDED, and ${back.length} refunds at the provider`);
  for (const { amount_minor, currency } of back)
    if (amount_minor !== charge.amount_minor || currency !== charge.currency)
      wrong(`${amount_minor} ${currency} back of ${charge.amount_minor} ${charge.currency}`);
  const inPostgres = row.refunds.map(({ state, amount }) => `${state} ${amount}`).join();
  if (inPostgres !== `EXECUTED ${charge.amount_minor}`)
    wrong(`REFUNDED, and in Postgres its refunds are "${inPostgres}"`);
  if (row.owner === id) wrong('both: REFUNDED, and it owns its hold');
  verdict.refunded += 1;
  if (row.settlement_reason === 'MISMATCH') verdict.mismatched += 1;
}

/** Whether the API has answered 2xx to the news that a payment succeeded. */
export function taken(book: Book, paymentId: string): boolean {
  return book
    .eventsOf(paymentId)
    .filter(({ type }) => type === 'payment.succeeded')
    .flatMap(({ tries }) => tries)
    .some(({ status }) => status !== null && status >= 200 && status < 300);
}

async function paymentRows(client: pg.Client): Promise<Row[]> {
  const { rows } = await client.query<Row>(`
    select p.payment_id, p.status, p.settlement, p.settlement_reason, p.hold_id,
      h.status as hold_status, h.payment_id as owner,
      p.amount_minor::float8 as amount_minor, o.total_minor::float8 as total_minor,
      coalesce((select jsonb_agg(jsonb_build_object('state', r.state, 'amount', r.amount_minor))
        from tahan.refunds r where (r.provider, r.payment_id) = (p.provider, p.payment_id)), '[]') as refunds
    from tahan.payments p
    join tahan.holds h on h.id = p.hold_id
    left join tahan.orders o on o.hold_id = p.hold_id`);
  return rows;
}

/** Every hold has ended, and what is sold belongs to the confirmed ones. Each is of one unit. */
async function holdsAndUnits(client: pg.Client, { wrong }: Verdict): Promise<void> {
  const { rows } = await client.query<{ open: number; confirmed: number; sold: number }>(`
    select (select count(*)::int from tahan.holds where status = 'HELD') as open,
      (select count(*)::int from tahan.holds where status = 'CONFIRMED') as confirmed,
      (select sum(sold)::int from tahan.bins) as sold`);
  const { open, confirmed, sold } = rows[0]!;
  if (open > 0) wrong.push(`${open} holds are still HELD`);
  if (sold !== confirmed) wrong.push(`${sold} units are sold, ${confirmed} holds are CONFIRMED`);
}
