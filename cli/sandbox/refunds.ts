import { randomUUID } from 'node:crypto';
import type { Behaviour, RefundCall } from './behaviour.js';
import type { Book, Refund } from './book.js';

/** What the caller hears; `cut` ends the connection without an answer. */
export type Reply = { status: number; body: object } | 'cut';

export interface Counter {
  book: Book;
  refunds: Behaviour['refunds'];
  roll: () => number;
  /** Called for each refund that was executed just now. */
  executed: (refund: Refund) => void;
}

/**
 * Decides and executes in one go, with no await in between: two calls at once with one key make one
 * refund, as long as the key is remembered. What is answered about it is another matter.
 */
export function refund(call: RefundCall, key: string, counter: Counter): Reply {
  const { book, refunds: behaviour } = counter;
  const before = remembered(book, key, behaviour.forget_keys_after_ms);
  if (before !== undefined) {
    book.record({ kind: 'count', what: 'repeated_keys' });
    const same =
      before.payment_id === call.payment_id &&
      before.amount_minor === call.amount_minor &&
      before.currency === call.currency;
    return same ? answer(200, before) : problem(409, 'key_reused');
  }
  const refusal = refuse(call, book, behaviour);
  if (refusal !== undefined) return refusal;
  const made: Refund = {
    refund_id: `re_${randomUUID()}`,
    payment_id: call.payment_id,
    key,
    amount_minor: call.amount_minor,
    currency: call.currency,
    reason: call.reason,
    status: 'succeeded',
    executed_at: new Date().toISOString(),
  };
  book.record({ kind: 'refund', refund: made });
  counter.executed(made);
  const fault = nextFault(behaviour, counter.roll);
  if (fault === 'answer') return answer(201, made);
  book.record({ kind: 'count', what: 'faults' });
  return fault === 'cut' ? 'cut' : problem(500, 'internal_error');
}

export function listRefunds(book: Book, paymentId: string, key: string): Reply {
  const refunds = book
    .refundsOf(paymentId)
    .filter((one) => one.key === key)
    .map(({ refund_id, status, key, amount_minor }) => ({ refund_id, status, key, amount_minor }));
  return { status: 200, body: { refunds } };
}

export function problem(
  status: number,
  code: string,
  detail?: string,
): { status: number; body: object } {
  return { status, body: { code, ...(detail !== undefined && { detail }) } };
}

function answer(status: number, { refund_id, status: state }: Refund): Reply {
  return { status, body: { refund_id, status: state } };
}

/** The provider's memory of keys, which is shorter than its book. */
function remembered(book: Book, key: string, forgetAfterMs: number | null): Refund | undefined {
  return book.refunds.find(
    (one) =>
      one.key === key &&
      (forgetAfterMs === null || Date.now() - Date.parse(one.executed_at) < forgetAfterMs),
  );
}

function refuse(
  call: RefundCall,
  book: Book,
  { refuse: code, overdraw }: Behaviour['refunds'],
): Reply | undefined {
  const charge = book.charges.get(call.payment_id);
  const no = (status: number, why: string) => {
    book.record({ kind: 'count', what: 'refused' });
    return problem(status, why);
  };
  if (code !== null) return no(422, code);
  if (charge === undefined) return no(404, 'payment_not_found');
  if (charge.status === 'failed') return no(422, 'payment_not_successful');
  if (charge.currency !== call.currency) return no(422, 'currency_mismatch');
  if (overdraw) return undefined;
  const back = book.refundsOf(call.payment_id).reduce((sum, one) => sum + one.amount_minor, 0);
  if (back + call.amount_minor <= charge.amount_minor) return undefined;
  book.record({ kind: 'count', what: 'over_refunds_refused' });
  return no(422, 'refund_exceeds_charge');
}

function nextFault(
  { execute_then_fail: plan }: Behaviour['refunds'],
  roll: () => number,
): 'answer' | 'fail' | 'cut' {
  if (Array.isArray(plan)) return plan.shift() ?? 'answer';
  if (roll() >= plan) return 'answer';
  return roll() < 0.5 ? 'fail' : 'cut';
}
