/**
 * What becomes of the money, by the decided policies alone: a small model to hold the real thing
 * against. Written from the table of policies, never from the SQL.
 */
export const reports = ['failed', 'succeeded', 'refunded', 'part', 'second'] as const;
/** What is reported of a first payment and of a second one; the end passes; the workflow's own steps. */
export type Step = (typeof reports)[number] | 'passes' | 'timer' | 'work';
export const steps: Step[] = [...reports, 'passes', 'timer', 'work'];
export type Policy = 'refund' | 'accept_if_available' | 'review';
export const policies: Policy[] = ['refund', 'accept_if_available', 'review'];
/** A plain hold takes any amount; an order its price, which a wrong second payment is not. */
export const sales = ['hold', 'order', 'order, the second amount wrong'] as const;
export type Sale = (typeof sales)[number];
export type PaymentName = 'first' | 'second';

export interface Money {
  status: 'failed' | 'succeeded' | 'refunded';
  inTime: boolean | null;
  settlement: 'APPLIED' | 'ACCEPTED_LATE' | 'REFUND_DUE' | 'REFUNDED' | 'NEEDS_REVIEW' | null;
  /** Its place among the payments that succeeded. */
  came: number;
  /** Only a part of it came back, as far as was told before it succeeded. */
  inPart: boolean;
  /** By us: what the provider sent back by itself is no call of ours. */
  sentBack: boolean;
}

export interface World {
  overdue: boolean;
  hold: 'HELD' | 'CONFIRMED' | 'EXPIRED';
  owner: PaymentName | null;
  payments: Partial<Record<PaymentName, Money>>;
}

export const beginning: World = { overdue: false, hold: 'HELD', owner: null, payments: {} };

const untold: Money = {
  status: 'failed',
  inTime: null,
  settlement: null,
  came: 0,
  inPart: false,
  sentBack: false,
};

/** The world after one step more. */
export function after(before: World, step: Step, policy: Policy, sale: Sale): World {
  const payments: World['payments'] = {};
  for (const [name, money] of Object.entries(before.payments))
    payments[name as PaymentName] = { ...money };
  const world: World = { ...before, payments };
  const fits = (name: PaymentName) => !(name === 'second' && sale === sales[2]);
  const known = (name: PaymentName) => (payments[name] ??= { ...untold });
  const late = policy === 'review' ? 'NEEDS_REVIEW' : 'REFUND_DUE';

  const succeed = (name: PaymentName) => {
    const money = known(name);
    // A repeat, or one that was taken back before: all of it, for a part leaves the rest here.
    if (money.status === 'succeeded' || (money.status === 'refunded' && !money.inPart)) return;
    money.came = 1 + Object.values(payments).filter(({ came }) => came > 0).length;
    money.status = 'succeeded';
    money.inPart = false;
    money.inTime = world.hold === 'HELD' && !world.overdue;
    money.settlement = null;
    if (!fits(name) || world.hold === 'CONFIRMED') money.settlement = 'REFUND_DUE';
    else if (world.hold === 'EXPIRED' && policy !== 'accept_if_available') money.settlement = late;
  };
  const takeBack = (part: boolean) => {
    const told = payments.first !== undefined;
    const money = known('first');
    if (part && told) return;
    money.inPart = part;
    if (money.status === 'refunded') return;
    money.status = 'refunded';
    money.settlement = world.owner === 'first' ? 'NEEDS_REVIEW' : 'REFUNDED';
  };
  const confirm = (name: PaymentName, money: Money) => {
    if (world.hold === 'CONFIRMED') money.settlement = 'REFUND_DUE';
    else if (!money.inTime && policy !== 'accept_if_available') money.settlement = late;
    else {
      money.settlement = money.inTime ? 'APPLIED' : 'ACCEPTED_LATE';
      world.hold = 'CONFIRMED';
      world.owner = name;
    }
  };
  // In time before late, and in the order in which they came.
  const pending = () =>
    (Object.entries(payments) as [PaymentName, Money][])
      .filter(([, { status, settlement }]) => status === 'succeeded' && settlement === null)
      .sort(([, a], [, b]) => Number(b.inTime) - Number(a.inTime) || a.came - b.came);

  if (step === 'failed') known('first');
  else if (step === 'succeeded') succeed('first');
  else if (step === 'second') succeed('second');
  else if (step === 'refunded') takeBack(false);
  else if (step === 'part') takeBack(true);
  else if (step === 'passes') world.overdue = true;
  else if (step === 'timer') {
    if (world.hold === 'HELD') {
      const first = pending().find(([, { inTime }]) => inTime);
      if (first) confirm(...first);
      else if (world.overdue) world.hold = 'EXPIRED';
    }
  } else {
    for (const [name, money] of pending()) confirm(name, money);
    for (const money of Object.values(payments)) {
      if (money.settlement !== 'REFUND_DUE') continue;
      money.settlement = 'REFUNDED';
      money.sentBack = true;
    }
  }
  return world;
}
