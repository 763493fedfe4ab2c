import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import type { Logger } from 'pino';
import { openDatabase } from '../db/database.js';
import type { Database } from '../db/database.js';
import { checkSchema, SchemaMismatch } from '../db/migrate.js';
import { listUnsentRefunds, listUnsettledPayments } from '../db/openHolds.js';
import {
  checkSearchAttributes,
  connect,
  sendRefund,
  sendSettle,
  taskQueuePrefix,
} from '../workflows/contract.js';
import type { Holds } from '../workflows/contract.js';
import { createApi } from './app.js';
import { InvalidSettings, readSettings } from './settings.js';
import type { Settings } from './settings.js';

/**
 * The API as a process of its own, set by the environment alone. It starts and answers, with 503
 * where it must, while Postgres or Temporal is away; it ends by SIGTERM, SIGINT, or with its parent.
 */
async function main(): Promise<void> {
  const settings = settingsOrExit();
  const logger = pino({
    name: 'tahan-api',
    level: settings.logLevel,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
  });
  const db = openDatabase({
    url: settings.databaseUrl,
    takeAppRole: settings.takeAppRole,
    stockLockTimeoutMs: settings.stockLockTimeoutMs,
    applicationName: 'tahan api',
  });
  const temporal = connect();
  const holds: Holds = { client: temporal.client, prefix: taskQueuePrefix(), indexed: false };
  const stopping = listenForStop(settings);
  const stopped = stopping.signal;

  const server = createServer(createApi({ db, holds, settings, logger, stopping: stopped }));
  // A request that trickles in must not keep a socket: 20 s for all of it, 10 s for its headers.
  server.requestTimeout = 20_000;
  server.headersTimeout = 10_000;
  server.keepAliveTimeout = 15_000;
  // Known before the first checkout where Temporal answers at once: an unindexed hold stays unindexed.
  const indexed = learnWhetherIndexed(holds, logger, stopped);
  await Promise.race([indexed, after(2000, stopped)]);
  await listen(server, settings);
  const { address, port } = server.address() as AddressInfo;
  const host = address.includes(':') ? `[${address}]` : address;
  process.stdout.write(`${JSON.stringify({ ready: true, url: `http://${host}:${port}` })}\n`);

  const settled = settleLeftOvers(db, holds, logger, stopping);
  if (!stopped.aborted) await once(stopped, 'abort');
  logger.info({ reason: String(stopped.reason) }, 'stopping');
  await close(server);
  await Promise.allSettled([indexed, settled]);
  await Promise.allSettled([db.close(), temporal.close()]);
  // The parent's pipe, where it is listened to, would keep the process for ever.
  process.exit();
}

function settingsOrExit(): Settings {
  try {
    return readSettings();
  } catch (error) {
    if (!(error instanceof InvalidSettings)) throw error;
    process.stderr.write(`The API can not start:\n${error.message}\n`);
    process.exit(2);
  }
}

function listen(server: Server, { host, port }: Settings): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Holds are indexed for the Temporal UI once the search attributes are known to be there. */
async function learnWhetherIndexed(
  holds: Holds,
  logger: Logger,
  stopped: AbortSignal,
): Promise<void> {
  while (!stopped.aborted) {
    const found = await checkSearchAttributes(holds.client);
    if (found.outcome === 'REGISTERED') {
      holds.indexed = true;
      return;
    }
    logger.warn(found, 'holds are not indexed in Temporal; the command adds the search attributes');
    if (found.outcome === 'MISSING') return;
    await after(5000, stopped);
  }
}

/**
 * Once, as soon as Postgres and Temporal answer: payments that were stored for a hold that has
 * ended, but that nobody was told of because Temporal was away, and money of returns whose workflow
 * was lost. There is no polling afterwards.
 */
async function settleLeftOvers(
  db: Database,
  holds: Holds,
  logger: Logger,
  stopping: AbortController,
): Promise<void> {
  const stopped = stopping.signal;
  while (!stopped.aborted) {
    try {
      await checkSchema(db);
      let left = 0;
      for (const { holdId, ...payment } of await listUnsettledPayments(db)) {
        if (stopped.aborted) return;
        const { outcome } = await sendSettle(holds, holdId, payment, { withinMs: 4000 });
        if (outcome !== 'SENT') left += 1;
      }
      for (const { holdId, ...refund } of await listUnsentRefunds(db)) {
        if (stopped.aborted) return;
        const { outcome } = await sendRefund(holds, holdId, refund, { withinMs: 4000 });
        if (outcome !== 'SENT') left += 1;
      }
      if (left === 0) return;
      logger.warn({ left }, 'payments and refunds wait until Temporal answers');
    } catch (error) {
      if (error instanceof SchemaMismatch) {
        logger.fatal(error.message);
        process.exitCode = 1;
        return stopping.abort('the schema does not fit');
      }
      logger.warn({ err: error }, 'payments were not looked through yet');
    }
    await after(5000, stopped);
  }
}

/** Resolves after `ms`, or at once when the process is told to stop. */
function after(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    stopped.addEventListener('abort', done, { once: true });
    function done(): void {
      clearTimeout(timer);
      stopped.removeEventListener('abort', done);
      resolve();
    }
  });
}

/** SIGTERM, SIGINT, or the end of stdin; a second signal ends the process at once. */
function listenForStop({ exitWithParent }: Settings): AbortController {
  const stopping = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) {
    process.once(name, () => stopping.abort(name));
  }
  if (exitWithParent) {
    // The launcher holds the other end: however it ends, the pipe closes.
    const orphaned = () => stopping.abort('the parent has ended');
    process.stdin.once('end', orphaned).once('close', orphaned).once('error', orphaned).resume();
  }
  return stopping;
}

/** No new requests; those that run are answered, which takes 5 s at most; streams have ended. */
function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeIdleConnections();
    setTimeout(() => server.closeAllConnections(), 6000).unref();
  });
}

await main();
