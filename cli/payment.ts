import { setTimeout as sleep } from 'node:timers/promises';
import { Http } from './http.js';
import type { Running } from './running.js';
import type { Secrets } from './secrets.js';
import type { Charge, Event, Refund } from './sandbox/book.js';
import type { chargeRequest } from './sandbox/behaviour.js';
import type { z } from 'zod';

type Asked = Omit<z.input<typeof chargeRequest>, 'hold_id' | 'order_number'>;
type ChargeView = Charge & { events: Event[]; refunds: Refund[] };

/** A hold or an order: what both show alike. */
interface Target {
  status: string;
  expires_in_seconds: number;
  payments: {
    payment_id: string;
    status: string;
    settlement: string | null;
    settlement_reason: string | null;
  }[];
}

export type Say = (what: string, text: string) => void;

export interface PayOptions {
  /** How long the payment's end is waited for; Infinity for as long as it takes. */
  waitMs: number;
  signal: AbortSignal;
}

/** Nothing more happens to a payment by itself after these. */
const ends = ['APPLIED', 'ACCEPTED_LATE', 'REFUNDED', 'NEEDS_REVIEW'];

export class UnknownHold extends Error {}

/**
 * Pays for a hold through the sandbox and tells what happens, step by step. Answers whether each
 * payment has come to its end.
 */
export async function pay(
  name: string,
  asked: Asked,
  { apiUrl, sandboxUrl, secrets }: Running & { secrets: Secrets },
  say: Say,
  { waitMs, signal }: PayOptions,
): Promise<boolean> {
  const api = new Http(apiUrl, signal);
  const sandbox = new Http(sandboxUrl, signal);
  const isHold = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(name);
  const path = `/v1/${isHold ? 'holds' : 'orders'}/${encodeURIComponent(name)}`;
  const look = () => api.send('GET', path, { key: secrets.shopKey });

  const first = await look();
  if (first.status === 404)
    throw new UnknownHold(`There is no ${isHold ? 'hold' : 'order'} ${name}.`);
  if (first.status !== 200)
    throw new Error(`The API answered ${first.status}: ${JSON.stringify(first.body)}`);
  const before = first.body as Target;
  const hold = isHold ? 'hold' : 'order';
  say(
    hold,
    `${before.status}${before.expires_in_seconds > 0 ? `, ${before.expires_in_seconds} s left` : ''}`,
  );

  const { charges } = await sandbox.must<{ charges: Charge[] }>('POST', '/charges', {
    body: { ...(isHold ? { hold_id: name } : { order_number: name }), ...asked },
  });
  for (const { payment_id, status, ...price } of charges)
    say('charge', `${payment_id}: ${money(price)} ${status === 'failed' ? 'not ' : ''}taken`);
  if (asked.late) say('webhook', `is sent when the ${hold} is over`);

  const teller = new Teller(hold, before, say);
  const end = performance.now() + waitMs;
  for (;;) {
    const { status, body } = await look();
    const views = await Promise.all(
      charges.map(({ payment_id }) =>
        sandbox.must<ChargeView>('GET', `/charges/${encodeURIComponent(payment_id)}`),
      ),
    );
    const now = status === 200 ? (body as Target) : before;
    const ended = teller.tell(views, now);
    if (ended) return true;
    if (performance.now() > end) {
      for (const view of views)
        say('end', `${view.payment_id}: ${ending(view, now) ?? notYet(view, now)}`);
      return false;
    }
    await sleep(250, undefined, { signal });
  }
}

/** Says what is new since the last look. */
class Teller {
  readonly #hold: string;
  readonly #say: Say;
  readonly #told = new Set<string>();
  #status: string;

  constructor(hold: string, { status }: Target, say: Say) {
    this.#hold = hold;
    this.#status = status;
    this.#say = say;
  }

  /** Answers whether all payments have come to their end, and says which. */
  tell(views: ChargeView[], target: Target): boolean {
    const news = views.flatMap(({ events, refunds }) => [
      ...events.flatMap(newsOf),
      ...refunds.map(newsOfRefund),
    ]);
    for (const { key, what, text } of news.sort((a, b) => a.at.localeCompare(b.at)))
      this.#once(key, what, text);
    if (target.status !== this.#status) this.#say(this.#hold, (this.#status = target.status));
    const endings = views.map((view) => ending(view, target));
    if (endings.some((one) => one === undefined)) return false;
    views.forEach(({ payment_id }, index) => this.#say('end', `${payment_id}: ${endings[index]}`));
    return true;
  }

  #once(key: string, what: string, text: string): void {
    if (this.#told.has(key)) return;
    this.#told.add(key);
    this.#say(what, text);
  }
}

interface News {
  at: string;
  key: string;
  what: string;
  text: string;
}

function newsOf({ id, type, tries, state }: Event): News[] {
  const told = tries.map(({ at, status, answer, signed }, index) => {
    const badly = signed === 'badly' ? ', badly signed,' : '';
    const answered = status === null ? `no answer (${answer})` : `${status} ${answer}`;
    return { at, key: `${id} ${index}`, what: 'webhook', text: `${type}${badly} -> ${answered}` };
  });
  if (state !== 'given_up') return told;
  const at = tries.at(-1)?.at ?? '';
  return [...told, { at, key: `${id} ended`, what: 'webhook', text: `${type} is given up` }];
}

function newsOfRefund(refund: Refund): News {
  const { refund_id, executed_at: at, reason } = refund;
  return {
    at,
    key: refund_id,
    what: 'refund',
    text: `${refund_id}: ${money(refund)} back (${reason})`,
  };
}

/** Undefined while something is still to come. */
function ending({ payment_id, status, events }: ChargeView, target: Target): string | undefined {
  if (events.some(({ state }) => state === 'waiting')) return undefined;
  const row = target.payments.find((one) => one.payment_id === payment_id);
  if (row === undefined)
    return events.some(({ state }) => state === 'delivered')
      ? undefined
      : 'the API did not take it';
  if (status === 'failed' && row.status === 'failed') return 'failed, nothing to give back';
  if (row.settlement === null || !ends.includes(row.settlement)) return undefined;
  return settlementOf(row);
}

function notYet({ payment_id, events }: ChargeView, target: Target): string {
  if (events.some(({ state }) => state === 'waiting'))
    return `its webhook is still to come${target.expires_in_seconds > 0 ? `, in more than ${target.expires_in_seconds} s` : ''} (--wait waits for it)`;
  const row = target.payments.find((one) => one.payment_id === payment_id);
  return `${row === undefined ? 'not shown' : settlementOf(row)}, not ended yet (--wait waits for it)`;
}

function settlementOf({ settlement, settlement_reason }: Target['payments'][number]): string {
  return `${settlement ?? 'not settled'}${settlement_reason === null ? '' : ` (${settlement_reason})`}`;
}

export function money({
  amount_minor,
  currency,
}: {
  amount_minor: number;
  currency: string;
}): string {
  const { maximumFractionDigits: digits = 2 } = new Intl.NumberFormat('en', {
    style: 'currency',
    currency,
  }).resolvedOptions();
  return `${(amount_minor / 10 ** digits).toFixed(digits)} ${currency}`;
}
