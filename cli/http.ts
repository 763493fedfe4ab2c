import { setTimeout as sleep } from 'node:timers/promises';

export interface Answer {
  status: number;
  headers: Headers;
  body: unknown;
}

export interface Sent {
  key?: string;
  headers?: Record<string, string>;
  body?: unknown;
}

/** The running API, as a shop or an operator sees it. */
export class Http {
  readonly #url: string;
  readonly #signal: AbortSignal;

  constructor(url: string, signal: AbortSignal) {
    this.#url = url;
    this.#signal = signal;
  }

  async send(method: string, path: string, { key, headers, body }: Sent = {}): Promise<Answer> {
    const response = await fetch(this.#url + path, {
      method,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      signal: AbortSignal.any([this.#signal, AbortSignal.timeout(15_000)]),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, body: parsed(text) };
  }

  /** Repeated like a checkout; any other answer than success is an error that shows it. */
  async must<T>(method: string, path: string, sent: Sent = {}): Promise<T> {
    const answer = await this.repeat(method, path, sent, 60_000);
    if (answer.status >= 200 && answer.status < 300) return answer.body as T;
    throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  }

  /**
   * What a shop does with a checkout: it repeats the same key while the answer is "not yet known" or
   * "try again", and takes any other answer as final. It waits as long as the answer asks, and longer
   * with each repeat: 200 buyers who came back every second kept a busy machine from serving any.
   */
  async repeat(method: string, path: string, sent: Sent, withinMs: number) {
    const end = performance.now() + withinMs;
    for (let repeats = 0; ; repeats++) {
      const answer = await this.send(method, path, sent);
      if (![202, 429, 503].includes(answer.status) || performance.now() > end) {
        return { ...answer, repeats };
      }
      const asked = Number(answer.headers.get('retry-after') ?? 1) * 1000;
      const patience = Math.min(8, 1 + repeats / 2);
      // Spread, so that those who were refused together do not come back together.
      const pause = asked * patience * (0.75 + Math.random() * 0.5);
      await sleep(pause, undefined, { signal: this.#signal });
    }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
