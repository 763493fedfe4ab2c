/**
 * The API of the floor, a process of its own: our routes, signatures and messages, with answers at
 * once in place of Postgres. What is left is what HTTP and Temporal alone cost.
 */
import { createServer } from 'node:http';
import { pino } from 'pino';
import { createApi } from '../../api/app.js';
import { readSettings } from '../../api/settings.js';
import { checkSearchAttributes, connect, send, taskQueuePrefix } from '../../workflows/contract.js';
import type { Holds } from '../../workflows/contract.js';
import { standIn } from './standIn.js';

const settings = readSettings();
const logger = pino({ name: 'floor-api', level: settings.logLevel, base: null });
const { client } = connect();
const holds: Holds = { client, prefix: taskQueuePrefix(), indexed: false };
const found = await checkSearchAttributes(client);
holds.indexed = found.outcome === 'REGISTERED';

const shop = standIn(Number(process.env['BENCH_UNITS']), send);
const app = createApi({ db: shop.db, holds, settings, logger, send: shop.send });
const server = createServer(app);
server.keepAliveTimeout = 15_000;
server.listen(settings.port, '127.0.0.1', () =>
  process.stdout.write(`${JSON.stringify({ ready: true })}\n`),
);
