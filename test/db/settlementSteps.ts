import type pg from 'pg';
import { sales } from '../model/settlement.js';
import type { Money, PaymentName, Policy, Sale, Step, World } from '../model/settlement.js';
import type { Shop } from './shop.js';

/** What the database shows of one hold, its money and its unit. */
export interface View {
  overdue: boolean;
  hold: World['hold'];
  owner: PaymentName | null;
  payments: Record<string, Pick<Money, 'status' | 'inTime' | 'settlement'>>;
  refunds: { payment: string; state: string; amount: number; calls: number }[];
  units: { available: number; held: number; sold: number };
  moved: string[];
}

/** The steps as functions in the database: a round trip each, also for a workflow's whole part. */
const functions = `
create function public.view(p_hold uuid) returns json language sql volatile as $$
  select json_build_object('overdue', h.expires_at <= tahan.tahan_clock(), 'hold', h.status, 'owner', h.payment_id,
    'payments', coalesce((select json_object_agg(p.payment_id, json_build_object(
        'status', p.status, 'inTime', p.in_time, 'settlement', p.settlement) order by p.payment_id)
      from tahan.payments p where p.hold_id = h.id), '{}'),
    'refunds', coalesce((select json_agg(json_build_object(
        'payment', r.payment_id, 'state', r.state, 'amount', r.amount_minor, 'calls', r.calls) order by r.payment_id)
      from tahan.refunds r join tahan.payments p using (provider, payment_id) where p.hold_id = h.id), '[]'),
    'units', (select json_build_object('available', b.available, 'held', b.held, 'sold', b.sold)
      from tahan.bins b join tahan.hold_lines l using (sku) where l.hold_id = h.id),
    'moved', (select json_agg(m.type order by m.id) from tahan.movements m where m.hold_id = h.id))
  from tahan.holds h where h.id = p_hold
$$;
create function public.settle(p_hold uuid, p_payment text) returns void language plpgsql as $$
declare v jsonb;
begin
  loop
    v := tahan.confirm(p_hold, 'test', p_payment);
    exit when v->>'outcome' <> 'PAYMENT_PENDING';
    perform public.settle(p_hold, v->'payment'->>'paymentId');
  end loop;
end $$;
create function public.step(p_hold uuid, p_step text, p_second bigint) returns json language plpgsql as $$
declare v jsonb; v_name text;
begin
  if p_step = 'passes' then
    update tahan.test_clock set shift = '1 hour';
  elsif p_step = 'timer' then
    v := tahan.expire(p_hold);
    if v->>'outcome' = 'PAYMENT_PENDING' then
      perform public.settle(p_hold, v->'payment'->>'paymentId');
    end if;
  elsif p_step = 'work' then
    for v_name in select payment_id from tahan.payments where hold_id = p_hold and status = 'succeeded'
      and settlement is null order by received_at
    loop
      perform public.settle(p_hold, v_name);
    end loop;
    for v_name in select payment_id from tahan.payments where hold_id = p_hold and settlement = 'REFUND_DUE'
    loop
      perform tahan.request_refund('test', v_name);
      if tahan.begin_refund('test', v_name, 'settlement')->>'outcome' = 'CALL' then
        perform tahan.finish_refund('test', v_name, 'settlement', 'EXECUTED', 're', null);
      end if;
    end loop;
  else
    perform tahan.record_payment('test', case p_step when 'second' then 'second' else 'first' end, p_step,
      case p_step when 'second' then 'succeeded' when 'part' then 'refunded' else p_step end, p_hold, null,
      case p_step when 'second' then p_second when 'part' then 400 else 1000 end, 'EUR', '{}');
  end if;
  return public.view(p_hold);
end $$`;

/** One hold of the only unit, on a connection whose transaction is never committed. */
export interface Stage {
  client: pg.Client;
  play(step: Step, before?: string): Promise<View>;
  end(): Promise<void>;
}

export async function stageOf(shop: Shop, policy: Policy, sale: Sale): Promise<Stage> {
  const order = sale !== 'hold';
  const price = order ? { priceMinor: 1000, currency: 'EUR' } : {};
  const sku = await shop.product([1], { latePayment: policy, ...price });
  const hold = await shop.hold({ [sku]: 1 }, { order });
  const client = await shop.session();
  await client.query(functions.replaceAll('create function', 'create or replace function'));
  await client.query('begin');
  const second = sale === sales[2] ? 999 : 1000;
  return {
    client,
    async play(step, before = '') {
      const text = `${before}; select public.step('${hold}', '${step}', ${second}) as view`;
      const results = (await client.query(text)) as unknown as pg.QueryResult<{ view: View }>[];
      return [results].flat().at(-1)!.rows[0]!.view;
    },
    async end() {
      await client.query('rollback');
      await client.end();
    },
  };
}

/** The part of a view that the model speaks of. */
function told(view: View): unknown {
  return {
    overdue: view.overdue,
    hold: view.hold,
    owner: view.owner,
    payments: view.payments,
    sentBack: view.refunds.map(({ payment }) => payment),
  };
}

function expected({ payments, ...world }: World): unknown {
  const names = (Object.keys(payments) as PaymentName[]).sort();
  return {
    ...world,
    payments: Object.fromEntries(
      names.map((name) => {
        const { status, inTime, settlement } = payments[name]!;
        return [name, { status, inTime, settlement }];
      }),
    ),
    sentBack: names.filter((name) => payments[name]!.sentBack),
  };
}

/** What must be true whatever came, in words; the model has no part in it. */
function broken(view: View, policy: Policy, worked: boolean): string[] {
  const faults: string[] = [];
  const claim = (ok: boolean, what: string) => void (ok || faults.push(what));
  const owners = Object.entries(view.payments).filter(
    ([, { settlement }]) => settlement === 'APPLIED' || settlement === 'ACCEPTED_LATE',
  );
  const { available, held, sold } = view.units;
  claim(available + held + sold === 1, 'one unit');
  claim(sold === (view.owner === null ? 0 : 1), 'sold exactly when a payment owns it');
  claim(held === (view.hold === 'HELD' ? 1 : 0), 'held while HELD');
  claim(owners.length <= 1 && owners.every(([name]) => name === view.owner), 'one owner');
  claim(new Set(view.refunds.map(({ payment }) => payment)).size === view.refunds.length, 'once');
  for (const [name, { status, settlement }] of Object.entries(view.payments)) {
    const back = view.refunds.filter(({ payment }) => payment === name);
    claim(back.reduce((sum, { amount }) => sum + amount, 0) <= 1000, `${name}: not more back`);
    claim(
      back.every(({ calls }) => calls === 1),
      `${name}: one call`,
    );
    claim(back.length === 0 || view.owner !== name, `${name}: owner or refunded, never both`);
    claim((status === 'failed') <= (settlement === null), `${name}: failed is unsettled`);
    if (!worked || status === 'failed') continue;
    const reviewed = policy === 'review' || (status === 'refunded' && view.owner === name);
    const ends = ['APPLIED', 'ACCEPTED_LATE', 'REFUNDED', ...(reviewed ? ['NEEDS_REVIEW'] : [])];
    claim(ends.includes(String(settlement)), `${name}: ${settlement} is no end`);
  }
  return faults;
}

/** Null, or how the database left the model or a rule, with the steps that led there. */
export function difference(
  path: Step[],
  view: View,
  world: World,
  policy: Policy,
  sale: Sale,
): string | null {
  const [is, should] = [told(view), expected(world)].map((each) => JSON.stringify(each));
  const faults = broken(view, policy, path.at(-1) === 'work');
  if (is === should && faults.length === 0) return null;
  return `${policy}, ${sale}: ${path.join(' ')}\nis     ${is}\nshould ${should}\n${faults.join('\n')}`;
}
