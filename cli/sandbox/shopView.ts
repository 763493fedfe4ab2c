export interface Target {
  hold_id: string | null;
  order_number: string | null;
}

export interface Seen {
  status: string;
  /** Until the hold's end, by the shop's own clock. */
  leftMs: number;
  total: { amount_minor: number; currency: string } | null;
}

/** What the provider may ask of the shop, with a shop key; without one it is blind. */
export class ShopView {
  readonly #url: string;
  readonly #key: string | undefined;

  constructor(url: string, key: string | undefined) {
    this.#url = url;
    this.#key = key;
  }

  /** Undefined where there is no such hold, no key, or no answer. */
  async look(target: Target, signal: AbortSignal): Promise<Seen | undefined> {
    if (this.#key === undefined) return undefined;
    if (target.order_number !== null) return this.#order(target.order_number, signal);
    const hold = await this.#get(`/v1/holds/${target.hold_id}`, signal);
    if (hold === undefined) return undefined;
    const order = hold['order_number'];
    const ordered = typeof order === 'string' ? await this.#order(order, signal) : undefined;
    return ordered ?? seen(hold, 'expires_at');
  }

  async #order(number: string, signal: AbortSignal): Promise<Seen | undefined> {
    const order = await this.#get(`/v1/orders/${encodeURIComponent(number)}`, signal);
    return order && seen(order, 'reservation_expires_at');
  }

  async #get(path: string, signal: AbortSignal): Promise<Record<string, unknown> | undefined> {
    try {
      const answer = await fetch(this.#url + path, {
        headers: { authorization: `Bearer ${this.#key}` },
        signal: AbortSignal.any([signal, AbortSignal.timeout(10_000)]),
      });
      const body = (await answer.json()) as Record<string, unknown>;
      return answer.status === 200 ? body : undefined;
    } catch {
      return undefined;
    }
  }
}

function seen(body: Record<string, unknown>, end: string): Seen {
  const at = (name: string) => Date.parse(String(body[name]));
  const leftMs = at(end) - at('server_time');
  return {
    status: String(body['status']),
    leftMs: Number.isFinite(leftMs) ? leftMs : 0,
    total: (body['total'] as Seen['total'] | undefined) ?? null,
  };
}
