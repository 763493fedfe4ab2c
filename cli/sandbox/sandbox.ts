import express from 'express';
import type { NextFunction, Request, Response } from 'express';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import { z } from 'zod';
import { behaviour, chargeRequest, dice, refundRequest } from './behaviour.js';
import type { Behaviour } from './behaviour.js';
import { Book } from './book.js';
import { charge, eventOf } from './charges.js';
import { Courier } from './courier.js';
import { listRefunds, problem, refund } from './refunds.js';
import type { Reply } from './refunds.js';
import { ShopView } from './shopView.js';

export interface SandboxOptions {
  /** Any free one where it is missing. */
  port?: number;
  /** Standard Webhooks secret that its events are signed with. */
  secret: string;
  /** The secret that calls about refunds must be signed with; the same one where it is missing. */
  refundSecret?: string;
  /** The API's address. */
  deliverTo: string;
  /** A shop key, to ask for a hold's end and price. */
  shopKey?: string;
  /** The journal of its book; in memory alone where it is missing. */
  file?: string;
  /** Of its faults. */
  seed?: number;
  behaviour?: z.input<typeof behaviour>;
  log?: (fact: object) => void;
}

export interface Sandbox {
  url: string;
  book: Book;
  seed: number;
  close(): Promise<void>;
}

/** A payment provider on this machine, with a book of its own, that behaves badly on demand. */
export async function startSandbox(options: SandboxOptions): Promise<Sandbox> {
  const { secret, refundSecret = secret, seed = randomInt(2 ** 31) } = options;
  const log = options.log ?? (() => undefined);
  const deliverTo = options.deliverTo.replace(/\/+$/, '');
  const book = new Book(options.file);
  const shop = new ShopView(deliverTo, options.shopKey);
  let current: Behaviour = behaviour.parse(options.behaviour ?? {});
  const webhooks = () => current.webhooks;
  const courier = new Courier({ book, shop, deliverTo, secret, webhooks, log });
  const roll = dice(seed);
  const closing = new AbortController();

  const app = express();
  app.disable('x-powered-by');
  app.use(onlyThisMachine);
  const json = [onlyJson, express.json({ limit: '64kb' })];

  app.get('/livez', (_request, response) => void response.json({ status: 'ok' }));
  app.get('/book', (_request, response) => void response.json(book.shown()));
  app.get('/behaviour', (_request, response) => void response.json(current));
  app.put('/behaviour', json, (request: Request, response: Response) => {
    current = behaviour.parse(request.body);
    response.json(current);
  });

  app.post('/charges', json, async (request: Request, response: Response) => {
    const asked = chargeRequest.parse(request.body);
    const charges = await charge(asked, { book, courier, shop, webhooks }, closing.signal);
    if (charges === 'HOLD_UNKNOWN')
      return reply(response, problem(422, 'hold_unknown', 'Its end can not be asked for.'));
    if (charges === 'PAYMENT_EXISTS') return reply(response, problem(409, 'payment_exists'));
    response.status(201).json({ charges });
  });
  app.get('/charges/:id', (request: Request<{ id: string }>, response) => {
    const { id } = request.params;
    const found = book.charges.get(id);
    if (found === undefined) return reply(response, problem(404, 'payment_not_found'));
    response.json({ ...found, events: book.eventsOf(id), refunds: book.refundsOf(id) });
  });

  app.use(
    '/refunds',
    express.raw({ type: () => true, limit: '64kb' }),
    (request, response, next) => {
      if (current.refunds.down) return reply(response, problem(503, 'unavailable'));
      if (!signed(request, refundSecret)) return reply(response, problem(401, 'signature_invalid'));
      next();
    },
  );
  app.get('/refunds', (request, response) => {
    const { payment_id, key } = z
      .strictObject({ payment_id: z.string(), key: z.string() })
      .parse(request.query);
    // The signature is over the key: with another one in the query it would be somebody else's question.
    if (key !== request.get('webhook-id'))
      return reply(response, problem(401, 'signature_invalid'));
    reply(response, listRefunds(book, payment_id, key));
  });
  app.post('/refunds', async (request: Request, response: Response) => {
    const key = request.get('idempotency-key');
    if (key === undefined || key !== request.get('webhook-id'))
      return reply(response, problem(400, 'key_missing'));
    const call = refundRequest.parse(JSON.parse(String(request.body)));
    const { refunds } = current;
    const answer = refund(call, key, {
      book,
      refunds,
      roll,
      executed(made) {
        const charged = book.charges.get(made.payment_id)!;
        const event = eventOf(
          { ...charged, amount_minor: made.amount_minor },
          'refunded',
          made.refund_id,
          1,
        );
        if (webhooks().refunded) courier.send([{ ...event, copies: webhooks().copies }]);
      },
    });
    log({ refund: call.payment_id, key, answer: answer === 'cut' ? 'cut' : answer.status });
    if (refunds.slow_ms > 0) await sleep(refunds.slow_ms, undefined, { signal: closing.signal });
    reply(response, answer);
  });
  app.use((_request, response) => reply(response, problem(404, 'not_found')));
  app.use(failed);

  const server = createServer(app);
  server.listen(options.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    book,
    seed,
    async close() {
      closing.abort();
      await courier.close();
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

/** A page in a browser on this machine can reach us: not under another name, and not without asking. */
function onlyThisMachine(request: Request, response: Response, next: NextFunction): void {
  if (['127.0.0.1', 'localhost'].includes(request.hostname)) return next();
  reply(response, problem(403, 'host_unknown'));
}

function onlyJson(request: Request, response: Response, next: NextFunction): void {
  if (request.is('application/json')) return next();
  reply(response, problem(415, 'json_expected'));
}

/** Standard Webhooks over the raw body, which a GET has none of. */
function signed(request: Request, secret: string): boolean {
  const header = (name: string) => request.get(name) ?? '';
  const headers = {
    'webhook-id': header('webhook-id'),
    'webhook-timestamp': header('webhook-timestamp'),
    'webhook-signature': header('webhook-signature'),
  };
  const raw = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  try {
    new Webhook(secret).verify(raw, headers, { jsonParse: false });
    return true;
  } catch {
    return false;
  }
}

function reply(response: Response, answer: Reply): void {
  if (answer === 'cut') response.destroy();
  else response.status(answer.status).json(answer.body);
}

function failed(error: unknown, _request: Request, response: Response, _next: NextFunction): void {
  if (response.headersSent || response.destroyed) return;
  if (error instanceof z.ZodError) {
    const detail = error.issues
      .map(({ path, message }) => `${path.join('.')}: ${message}`)
      .join('; ');
    return reply(response, problem(400, 'invalid_request', detail));
  }
  const { status } = error as { status?: number };
  if (error instanceof SyntaxError || (status !== undefined && status < 500))
    return reply(response, problem(status ?? 400, 'invalid_request'));
  reply(response, problem(500, 'internal_error'));
}
