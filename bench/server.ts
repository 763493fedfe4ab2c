/** A server of the `reads` bench as a process of its own: `api` or `bare`, on the database given. */
import type { AddressInfo } from 'node:net';
import express from 'express';
import { pino } from 'pino';
import { createApi } from '../api/app.js';
import { openDatabase } from '../db/database.js';
import { readAvailability } from '../db/readAvailability.js';
import type { Holds } from '../workflows/contract.js';

const [kind, url] = process.argv.slice(2) as ['api' | 'bare', string];
const db = openDatabase({ url, takeAppRole: true });

function bare(): express.Express {
  const app = express();
  app.get('/v1/products/:sku/availability', async (req, res) => {
    const [found] = await readAvailability(db, [req.params.sku]);
    res.json(found);
  });
  return app;
}

function api(): express.Express {
  const settings = {
    claimsInFlight: 1,
    webhookSecrets: [],
    stripeWebhookSecrets: [],
    rates: { perKey: null, perBuyer: null },
    streams: 1,
  };
  // Reads never ask Temporal; the log is written as in production, to nowhere.
  const holds = {} as Holds;
  const logger = pino({ level: 'info' }, { write: () => undefined });
  return createApi({ db, holds, settings, logger });
}

const server = (kind === 'api' ? api() : bare()).listen(0, '127.0.0.1', () => {
  process.send!({ port: (server.address() as AddressInfo).port });
});
process.once('disconnect', () => process.exit());
