import type { Audited } from './audit.js';
import { money } from './payment.js';
import type { Report } from './report.mjs';
import type { Secrets } from './secrets.js';
import { Shop, type Hold } from './shop.js';

/** A product that stays, for the reader's own first calls. */
export const playSku = 'TICKET';

/** On time after a killed worker: 4 s if no task was in flight, else the workflow task's own timeout. */
const lateAfterKillMs = 4_000;
const lateWithTaskMs = 12_000;

export interface Stage {
  apiUrl: string;
  sandboxUrl: string;
  secrets: Secrets;
  report: Report;
  killWorker(): Promise<number>;
  startWorker(): Promise<void>;
  signal: AbortSignal;
}

/** The live demonstration: only HTTP against the running system, and each part checks its own numbers. */
export async function demonstrate(stage: Stage): Promise<void> {
  const show = new Demonstration(stage);
  await show.part('a product to try', () => show.playground());
  // The first four need nothing of one another; the last one takes the worker away from all.
  await Promise.all([
    show.part('two buyers, one item', () => show.twoBuyersOneItem()),
    show.part('nobody pays', () => show.nobodyPays()),
    show.part('paid too late', () => show.paidTooLate()),
    show.part('200 buyers, 20 items', () => show.rush(200, 20)),
  ]);
  await show.part('kill -9 the worker', () => show.killedWorker());
}

/** What a part shows, and what it found to be wrong. */
interface Shown {
  text: string;
  checked: Record<string, unknown>;
  wrong: string[];
}

class Demonstration {
  readonly #stage: Stage;
  readonly #shop: Shop;

  constructor(stage: Stage) {
    this.#stage = stage;
    this.#shop = new Shop(stage, stage.secrets, stage.signal);
  }

  async part(name: string, show: () => Promise<Shown>): Promise<void> {
    const { report, signal } = this.#stage;
    try {
      const { text, checked, wrong } = await show();
      if (wrong.length === 0) report.step(name, text, checked);
      else
        report.fail(
          name,
          [text, ...wrong.map((sentence) => `wrong: ${sentence}`)].join('\n'),
          checked,
        );
    } catch (error) {
      if (!signal.aborted) report.fail(name, withCauses(error));
    }
  }

  async playground(): Promise<Shown> {
    await this.#shop.stock(playSku, 100, {
      name: 'A ticket',
      price: { amount_minor: 2500, currency: 'EUR' },
    });
    const { wrong, ledger: _ledger, ...counts } = await this.#shop.audit(playSku);
    return {
      text: `${playSku}, ${counts.available} available`,
      checked: { sku: playSku, ...counts },
      wrong,
    };
  }

  /** One is held, the other refused; the signed webhook of the payment confirms the hold. */
  async twoBuyersOneItem(): Promise<Shown> {
    const sku = await this.#shop.product('LAST-ONE', 1);
    const answers = await Promise.all([this.#shop.claim('ann', sku), this.#shop.claim('ben', sku)]);
    const check = new Check();
    check.equal(
      'answers',
      answers
        .map(({ status }) => status)
        .sort()
        .join(),
      '201,409',
    );
    const refusal = answers.find(({ status }) => status === 409)?.body as
      { code?: string } | undefined;
    check.equal('refused', refusal?.code, 'INSUFFICIENT_STOCK');
    const hold = answers.find(({ status }) => status === 201)?.body as Hold | undefined;
    if (hold === undefined) return check.shown('nobody was held');
    await this.#shop.pay(hold.id);
    const paid = await this.#shop.whenEnded(hold.id, 15_000);
    check.equal('hold', paid.status, 'CONFIRMED');
    const counts = await this.#counted(check, sku, { available: 0, held: 0, sold: 1 });
    check.equal('ledger', kinds(counts), 'restock,reserve,confirm_sold');
    return check.shown(
      `one held (${hold.buyer_id}), the other refused ${refusal?.code}; paid by webhook: ${paid.status}`,
    );
  }

  /** The durable timer gives the unit back, and the next buyer gets it. */
  async nobodyPays(): Promise<Shown> {
    const sku = await this.#shop.product('UNPAID', 1);
    const check = new Check();
    const first = await this.#shop.claim('cleo', sku, 2);
    check.equal('first', first.status, 201);
    if (first.status !== 201) return check.shown('nobody was held');
    const ended = await this.#shop.whenEnded((first.body as Hold).id, 20_000);
    check.equal('first hold', ended.status, 'EXPIRED');
    check.facts['late_ms'] = lateness(ended);
    const next = await this.#shop.claim('dan', sku);
    check.equal('next', next.status, 201);
    const counts = await this.#counted(check, sku, { available: 0, held: 1, sold: 0 });
    check.equal('ledger', kinds(counts), 'restock,reserve,release_reservation,reserve');
    return check.shown(
      `held for 2 s, ${ended.status} ${lateness(ended)} ms after its time; the next buyer has it`,
    );
  }

  /** The money comes when the hold is over: it confirms nothing, and goes back once. */
  async paidTooLate(): Promise<Shown> {
    const sku = await this.#shop.product('TOO-LATE', 1);
    const check = new Check();
    const claimed = await this.#shop.claim('fay', sku, 2);
    check.equal('held', claimed.status, 201);
    if (claimed.status !== 201) return check.shown('nobody was held');
    const { id } = claimed.body as Hold;
    const { payment_id } = await this.#shop.payLate(id);
    const settled = ({ payments: [first] }: Hold) =>
      ['APPLIED', 'ACCEPTED_LATE', 'REFUNDED', 'NEEDS_REVIEW'].includes(first?.settlement ?? '');
    const hold = await this.#shop.whenHold(id, 40_000, settled);
    const [payment] = hold.payments;
    check.equal('hold', hold.status, 'EXPIRED');
    check.equal('payments', hold.payments.length, 1);
    check.equal('settlement', payment?.settlement, 'REFUNDED');
    check.equal('reason', payment?.settlement_reason, 'LATE');
    // The provider's own book: what it sent back, whatever it answered.
    const charge = await this.#shop.charge(payment_id);
    check.equal('refunds at the provider', charge.refunds.length, 1);
    const back = charge.refunds.reduce((sum, { amount_minor }) => sum + amount_minor, 0);
    check.equal('sent back', back, charge.amount_minor);
    const counts = await this.#counted(check, sku, { available: 1, held: 0, sold: 0 });
    check.equal('ledger', kinds(counts), 'restock,reserve,release_reservation');
    const sum = money({ ...charge, amount_minor: back });
    return check.shown(
      `the buyer sees: hold ${hold.status}, payment ${payment?.settlement} (${payment?.settlement_reason})\n` +
        `the provider's book: ${money(charge)} taken, ${sum} sent back in ${charge.refunds.length} refund`,
    );
  }

  /** Everybody comes at once, and repeats the key as long as the answer is "try again". */
  async rush(buyers: number, units: number): Promise<Shown> {
    const sku = await this.#shop.product('RUSH', units);
    const started = performance.now();
    const answers = await Promise.all(
      Array.from({ length: buyers }, (_, index) => this.#shop.claim(`buyer-${index + 1}`, sku)),
    );
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const held = answers.filter(({ status }) => status === 201 || status === 200);
    const refused = answers.filter(
      ({ status, body }) =>
        status === 409 && (body as { code: string }).code === 'INSUFFICIENT_STOCK',
    );
    const check = new Check();
    check.equal('held', held.length, units);
    check.equal('different holds', new Set(held.map(({ body }) => (body as Hold).id)).size, units);
    check.equal('refused', refused.length, buyers - units);
    const counts = await this.#counted(check, sku, { available: 0, held: units, sold: 0 });
    const reserved = counts.ledger.filter(({ type }) => type === 'reserve');
    check.equal('reserved in the ledger', reserved.length, units);
    const inBoth = new Set(reserved.map((line) => line.hold_id));
    check.equal(
      'of those held',
      held.filter(({ body }) => inBoth.has((body as Hold).id)).length,
      units,
    );
    const repeats = answers.reduce((sum, answer) => sum + answer.repeats, 0);
    Object.assign(check.facts, { repeats, seconds: Number(seconds) });
    return check.shown(
      `${held.length} held, ${refused.length} refused in ${seconds} s (keys repeated ${repeats} times)\n` +
        `available ${counts.available} + held ${counts.held} + sold ${counts.sold} = ${counts.total}, as the ledger says`,
    );
  }

  /** The timer lives in Temporal: a worker that dies takes nothing with it. */
  async killedWorker(): Promise<Shown> {
    const sku = await this.#shop.product('CRASH', 1);
    const check = new Check();
    const claimed = await this.#shop.claim('eve', sku, 6);
    check.equal('held', claimed.status, 201);
    if (claimed.status !== 201) return check.shown('nobody was held');
    const pid = await this.#stage.killWorker();
    await this.#stage.startWorker();
    const ended = await this.#shop.whenEnded((claimed.body as Hold).id, 40_000);
    const late = lateness(ended);
    check.equal('hold', ended.status, 'EXPIRED');
    check.facts['late_ms'] = late;
    if (late > lateWithTaskMs) check.wrong.push(`the hold ended ${late} ms after its time`);
    await this.#counted(check, sku, { available: 1, held: 0, sold: 0 });
    const inFlight = late > lateAfterKillMs ? ' (a task was in flight)' : '';
    return check.shown(
      `killed process ${pid} during a hold of 6 s and started another: ${ended.status} ${late} ms after its time${inFlight}`,
    );
  }

  /** The audit, with the counts that must have come out. */
  async #counted(
    check: Check,
    sku: string,
    expected: { available: number; held: number; sold: number },
  ): Promise<Audited> {
    const counts = await this.#shop.audit(sku);
    check.wrong.push(...counts.wrong);
    for (const what of ['available', 'held', 'sold'] as const) {
      check.equal(`units ${what}`, counts[what], expected[what]);
    }
    return counts;
  }
}

/** The facts of one part, and which of them are not as they must be. */
class Check {
  readonly facts: Record<string, unknown> = {};
  readonly wrong: string[] = [];

  equal<T>(what: string, found: T, expected: T): void {
    this.facts[what.replaceAll(' ', '_')] = found;
    if (found !== expected)
      this.wrong.push(`${what}: ${String(found)}, must be ${String(expected)}`);
  }

  shown(text: string): Shown {
    return { text, checked: this.facts, wrong: this.wrong };
  }
}

/** How long after its time a hold ended, both by the database's clock. */
function lateness({ closed_at, expires_at }: Hold): number {
  return closed_at === null ? NaN : Date.parse(closed_at) - Date.parse(expires_at);
}

function kinds({ ledger }: Audited): string {
  return [...ledger]
    .sort((a, b) => a.bin_version - b.bin_version)
    .map(({ type }) => type)
    .join();
}

/** fetch says only "failed"; what happened is its cause. */
function withCauses(error: unknown): string {
  const words: string[] = [];
  for (let at = error; at instanceof Error; at = at.cause) words.push(at.message || String(at));
  return words.join(': ') || String(error);
}
