import { validateHeaderValue } from 'node:http';
import { signed, succeeded } from './service.js';
import type { Answer, Service } from './service.js';

/** A valid delivery for a hold, and what comes of so many copies of it with one bit changed each. */
export async function forge(service: Service, holdId: string, count: number) {
  const text = JSON.stringify(succeeded({ hold_id: holdId }));
  const headers = signed(service.secret, text);
  const names = Object.keys(headers);
  const send = (raw: string | Buffer, headers: Record<string, string>) =>
    service.send<{ outcome: string }>('POST', '/v1/payments/events', { key: null, raw, headers });
  const answers: Answer<unknown>[] = [];
  let seed = 7;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  while (answers.length < count) {
    const batch = Array.from({ length: 20 }, () => {
      const name = [...names, 'body', 'body'][random(names.length + 2)]!;
      const bytes = Buffer.from(name === 'body' ? text : headers[name]!, 'latin1');
      bytes[random(bytes.length)]! ^= 1 << random(8);
      if (name === 'body') return send(bytes, headers);
      const value = bytes.toString('latin1');
      // A client can't even send some of them.
      if (!sendable(value) || value.trim() !== value) return undefined;
      return send(text, { ...headers, [name]: value });
    });
    answers.push(...(await Promise.all(batch.filter((one) => one !== undefined))));
  }
  return { answers, untouched: () => send(text, headers) };
}

function sendable(value: string): boolean {
  try {
    validateHeaderValue('x', value);
    return true;
  } catch {
    return false;
  }
}
