import { expect } from 'vitest';
import { until } from '../workflows/engine.js';
import type { Availability } from './service.js';

/** An open stream of availability, as a page reads it. */
export interface OpenStream {
  /** Everything it was told, in order. */
  events: Availability[];
  /** As it came. */
  text(): string;
  latest(sku: string): Availability | undefined;
  /** Waits for a state of a product: how long it took, in ms. */
  shows(sku: string, state: object, withinMs?: number): Promise<number>;
  /** The server ended it politely, or it was cut. */
  ended: Promise<'ended' | 'cut'>;
  /** The reader goes away. */
  leave(): Promise<void>;
}

export async function openStream(url: string, key: string, skus: string[]): Promise<OpenStream> {
  const leaving = new AbortController();
  const answer = await fetch(`${url}/v1/availability/stream?skus=${skus.join(',')}`, {
    headers: { authorization: `Bearer ${key}`, accept: 'text/event-stream' },
    signal: leaving.signal,
  });
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
  const events: Availability[] = [];
  let text = '';
  const ended = (async () => {
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { done, value } = await reader.read();
      if (done) return 'ended' as const;
      text += value;
      const parts = (rest + value).split('\n\n');
      rest = parts.pop()!;
      for (const part of parts) {
        const data = /^data: (.*)$/m.exec(part)?.[1];
        if (data === undefined) continue;
        const one = JSON.parse(data) as Availability;
        expect(part).toBe(`event: availability\nid: ${one.as_of}\ndata: ${data}`);
        events.push(one);
      }
    }
  })().catch(() => 'cut' as const);
  const latest = (sku: string) => events.findLast((one) => one.sku === sku);
  return {
    events,
    text: () => text,
    latest,
    async shows(sku, state, withinMs = 10_000) {
      const began = performance.now();
      const fits = () =>
        Object.entries(state).every(([name, value]) => {
          return JSON.stringify(latest(sku)?.[name as 'sku']) === JSON.stringify(value);
        });
      await until(
        `the stream shows ${JSON.stringify(state)}, not ${JSON.stringify(latest(sku))}`,
        fits,
        withinMs,
      );
      return performance.now() - began;
    },
    ended,
    async leave() {
      leaving.abort();
      await ended;
    },
  };
}
