import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import type { Behaviour } from './behaviour.js';
import type { Book, Event, Try } from './book.js';
import type { ShopView } from './shopView.js';

export interface CourierParts {
  book: Book;
  shop: ShopView;
  /** The API's address. */
  deliverTo: string;
  secret: string;
  webhooks: () => Behaviour['webhooks'];
  log: (fact: object) => void;
}

const longestPauseMs = 60_000;

/**
 * Brings events to the API, signed by Standard Webhooks: again and again until it answers 2xx, with
 * pauses that double. What a killed process left undelivered, the next one goes on with.
 */
export class Courier {
  readonly #parts: CourierParts;
  readonly #signer: Webhook;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(parts: CourierParts) {
    this.#parts = parts;
    this.#signer = new Webhook(parts.secret);
    setMaxListeners(0, this.#closing.signal); // one listens for each webhook that waits: no leak
    const waiting = [...parts.book.events.values()].filter(({ state }) => state === 'waiting');
    for (const chain of new Set(waiting.map((event) => event.chain)))
      this.#start(waiting.filter((event) => event.chain === chain));
  }

  /** One after the other: the next is sent when the one before was taken, or given up. */
  send(events: Event[]): void {
    for (const event of events) this.#parts.book.record({ kind: 'event', event });
    this.#start(events);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#running);
  }

  #start(events: Event[]): void {
    const work = this.#deliver(events)
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted) this.#parts.log({ failed: String(error) });
      })
      .finally(() => this.#running.delete(work));
    this.#running.add(work);
  }

  async #deliver(events: Event[]): Promise<void> {
    for (const event of events) {
      await this.#due(event);
      const copies = Array.from({ length: event.copies }, (_, copy) => this.#repeat(event, copy));
      const taken = (await Promise.all(copies)).every(Boolean);
      this.#parts.book.record({
        kind: 'ended',
        event: event.id,
        state: taken ? 'delivered' : 'given_up',
      });
    }
  }

  async #due({ due, body }: Event): Promise<void> {
    const { signal } = this.#closing;
    if ('at' in due) {
      const left = Date.parse(due.at) - Date.now();
      if (left > 0) await sleep(left, undefined, { signal });
      return;
    }
    const { data } = JSON.parse(body) as { data: { hold_id?: string; order_number?: string } };
    const target = { hold_id: data.hold_id ?? null, order_number: data.order_number ?? null };
    for (;;) {
      const seen = await this.#parts.shop.look(target, signal);
      signal.throwIfAborted();
      // A buyer may extend while we wait, so it is the status that says "over".
      if (seen !== undefined && !['HELD', 'pending_payment'].includes(seen.status)) return;
      await sleep(Math.max(300, seen?.leftMs ?? 1000), undefined, { signal });
    }
  }

  /** Tells whether the API has taken it. */
  async #repeat(event: Event, copy: number): Promise<boolean> {
    const { first_pause_ms, span_ms } = this.#parts.webhooks();
    let paused = 0;
    for (let pause = first_pause_ms; ; pause = Math.min(pause * 2, longestPauseMs)) {
      const before = event.tries.filter((one) => one.copy === copy).length;
      const badly =
        event.bad_signature === 'always' || (event.bad_signature === 'once' && before === 0);
      const tried = await this.#post(event, copy, badly);
      this.#closing.signal.throwIfAborted();
      this.#parts.book.record({ kind: 'try', event: event.id, tried });
      const { payment_id, type, id } = event;
      this.#parts.log({ event: id, type, payment_id, ...tried });
      if (tried.status !== null && tried.status >= 200 && tried.status < 300) return true;
      paused += pause;
      if (!event.repeats || paused > span_ms) return false;
      await sleep(pause, undefined, { signal: this.#closing.signal });
    }
  }

  async #post({ id, body, slow_ms }: Event, copy: number, badly: boolean): Promise<Try> {
    const { deliverTo } = this.#parts;
    const now = new Date();
    const tried = {
      at: now.toISOString(),
      copy,
      signed: badly ? ('badly' as const) : ('well' as const),
    };
    const signer = badly ? new Webhook(randomBytes(32).toString('base64')) : this.#signer;
    try {
      const response = await fetch(`${deliverTo}/v1/payments/events`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
          'webhook-signature': signer.sign(id, now, body),
        },
        ...(slow_ms > 0 ? { body: slowly(body, slow_ms), duplex: 'half' as const } : { body }),
        redirect: 'manual',
        signal: AbortSignal.any([this.#closing.signal, AbortSignal.timeout(15_000 + slow_ms)]),
      });
      return { ...tried, status: response.status, answer: word(await response.text()) };
    } catch (error) {
      const { name, cause } = error as Error & { cause?: { code?: string } };
      return { ...tried, status: null, answer: cause?.code ?? name };
    }
  }
}

/** Half of it, a pause, and the rest. */
function slowly(body: string, slowMs: number): ReadableStream<Uint8Array> {
  const bytes = Buffer.from(body);
  const half = Math.floor(bytes.length / 2);
  return new ReadableStream({
    async start(stream) {
      stream.enqueue(bytes.subarray(0, half));
      await sleep(slowMs);
      stream.enqueue(bytes.subarray(half));
      stream.close();
    },
  });
}

/** The API's code or outcome: one word. */
function word(text: string): string {
  try {
    const { code, outcome } = JSON.parse(text) as { code?: string; outcome?: string };
    return code ?? outcome ?? '';
  } catch {
    return '';
  }
}
