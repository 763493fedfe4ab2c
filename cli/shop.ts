import { Webhook } from 'standardwebhooks';
import { audit, type Audited } from './audit.js';
import { Http } from './http.js';
import type { Charge, Event, Refund } from './sandbox/book.js';
import type { Secrets } from './secrets.js';
import { until } from './servers/until.js';

export interface Hold {
  id: string;
  status: string;
  buyer_id: string;
  expires_at: string;
  closed_at: string | null;
  payments: {
    payment_id: string;
    settlement: string | null;
    settlement_reason: string | null;
  }[];
}

/** What the provider knows about one payment. */
export type ChargeView = Charge & { events: Event[]; refunds: Refund[] };

/** What the shop, its operator and its payment service do in the demonstration: HTTP and nothing else. */
export class Shop {
  readonly #secrets: Secrets;
  readonly #http: Http;
  readonly #provider: Http;
  readonly #signal: AbortSignal;
  /** Names of this run: an earlier run's open holds must not come back into this one's counts. */
  readonly #run = Date.now().toString(36).toUpperCase();

  constructor(
    { apiUrl, sandboxUrl }: { apiUrl: string; sandboxUrl: string },
    secrets: Secrets,
    signal: AbortSignal,
  ) {
    this.#secrets = secrets;
    this.#http = new Http(apiUrl, signal);
    this.#provider = new Http(sandboxUrl, signal);
    this.#signal = signal;
  }

  /** A product of this run, with its units. */
  async product(name: string, units: number): Promise<string> {
    const sku = `${name}-${this.#run}`;
    await this.stock(sku, units, { name: `Demonstration: ${name.toLowerCase()}` });
    return sku;
  }

  /** Creates the product with its bin and units, unless it is there. */
  async stock(sku: string, quantity: number, settings: object): Promise<void> {
    const { operatorKey: key } = this.#secrets;
    const path = `/v1/products/${sku}`;
    if ((await this.#http.send('GET', path, { key })).status === 200) return;
    await this.#http.must('PUT', path, { key, body: settings });
    await this.#http.must('PUT', `${path}/bins/main`, { key, body: {} });
    await this.#http.must('POST', `${path}/bins/main/restock`, {
      key,
      headers: { 'idempotency-key': `demonstration-${sku}` },
      body: { quantity, reason: 'stock of the demonstration' },
    });
  }

  /** A checkout, repeated with its key until the answer is final. */
  claim(buyer: string, sku: string, holdSeconds?: number) {
    return this.#http.repeat(
      'POST',
      '/v1/holds',
      {
        key: this.#secrets.shopKey,
        headers: { 'idempotency-key': `${buyer}-${this.#run}` },
        body: {
          buyer_id: buyer,
          lines: [{ sku, quantity: 1 }],
          ...(holdSeconds !== undefined && { hold_seconds: holdSeconds }),
        },
      },
      120_000,
    );
  }

  /** The payment service's event, signed over the raw body by Standard Webhooks. */
  async pay(holdId: string): Promise<void> {
    const now = new Date();
    const paymentId = `payment-${this.#run}`;
    const id = `event-${paymentId}`;
    const body = JSON.stringify({
      type: 'payment.succeeded',
      timestamp: now.toISOString(),
      data: { payment_id: paymentId, hold_id: holdId, amount_minor: 2500, currency: 'EUR' },
    });
    const signature = new Webhook(this.#secrets.webhookSecret).sign(id, now, body);
    const answer = await this.#http.repeat(
      'POST',
      '/v1/payments/events',
      {
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
          'webhook-signature': signature,
        },
        body,
      },
      30_000,
    );
    if (answer.status !== 200) {
      throw new Error(`the payment was answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    }
  }

  /** The sandbox takes the money, and tells of it when the hold is over. */
  async payLate(holdId: string): Promise<ChargeView> {
    const { charges } = await this.#provider.must<{ charges: Charge[] }>('POST', '/charges', {
      body: { hold_id: holdId, late: true },
    });
    return this.charge(charges[0]!.payment_id);
  }

  /** A payment, as its provider sees it. */
  charge(paymentId: string): Promise<ChargeView> {
    return this.#provider.must('GET', `/charges/${encodeURIComponent(paymentId)}`);
  }

  whenEnded(holdId: string, withinMs: number): Promise<Hold> {
    return this.whenHold(holdId, withinMs, ({ status }) => status !== 'HELD');
  }

  /** The hold once this is true of it, or as it is when the time is over. */
  async whenHold(holdId: string, withinMs: number, fact: (hold: Hold) => boolean): Promise<Hold> {
    let hold: Hold | undefined;
    await until(
      async () => {
        this.#signal.throwIfAborted();
        const answer = await this.#http.send('GET', `/v1/holds/${holdId}`, {
          key: this.#secrets.shopKey,
        });
        if (answer.status === 200) hold = answer.body as Hold;
        return hold !== undefined && fact(hold);
      },
      withinMs,
      100,
    );
    if (hold === undefined) throw new Error(`hold ${holdId} can't be read`);
    return hold;
  }

  audit(sku: string): Promise<Audited> {
    return audit(this.#http, this.#secrets.operatorKey, sku);
  }
}
