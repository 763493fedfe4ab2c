import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as it came. */
export interface Heard {
  method: string;
  path: string;
  rawHeaders: string[];
  headers: IncomingMessage['headers'];
  raw: Buffer;
  /** When all of it was there. */
  at: number;
}

export type Answer = { status: number; body?: unknown; headers?: Record<string, string> } | 'cut';

export interface Recorder {
  url: string;
  heard: Heard[];
  close(): Promise<void>;
}

/** A server that remembers what it was told, and answers as the test says. */
export async function recorder(
  answer: (heard: Heard, heardSoFar: Heard[]) => Answer | Promise<Answer>,
): Promise<Recorder> {
  const heard: Heard[] = [];
  const server = createServer((request, response) => void listen(request, response));
  async function listen(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    request.on('error', () => undefined);
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const one: Heard = {
      method: request.method!,
      path: request.url!,
      rawHeaders: request.rawHeaders,
      headers: request.headers,
      raw: Buffer.concat(chunks),
      at: Date.now(),
    };
    heard.push(one);
    const said = await answer(one, heard);
    if (said === 'cut') return void response.destroy();
    const body = typeof said.body === 'string' ? said.body : JSON.stringify(said.body ?? {});
    response.writeHead(said.status, { 'content-type': 'application/json', ...said.headers });
    response.end(body);
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heard,
    async close() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}
