/**
 * The worker process: runs the workflows and their activities. Set by the environment alone
 * (settings.ts). It prints one line with `"ready":true` when it takes tasks.
 */
import { NativeConnection, Runtime } from '@temporalio/worker';
import { createActivities } from '../activities/index.js';
import type { PaymentProviders } from '../activities/sendRefund.js';
import { openDatabase } from '../db/database.js';
import type { Database } from '../db/database.js';
import { SchemaMismatch, checkSchema } from '../db/migrate.js';
import { listUnsentRefunds, listUnsettledPayments } from '../db/openHolds.js';
import {
  checkSearchAttributes,
  connect,
  sendRefund,
  sendSettle,
  taskQueues,
  temporalOptions,
} from '../workflows/contract.js';
import type { Holds } from '../workflows/contract.js';
import { openLog, temporalLogger } from './log.js';
import { patiently } from './patiently.js';
import { providersOf } from './providers.js';
import { InvalidSettings, readSettings } from './settings.js';
import type { WorkerSettings } from './settings.js';
import { listenForStop } from './stopping.js';
import { createWorkers } from './worker.js';
import { workflowCode } from './workflowCode.js';

/**
 * Settlements and refunds run beside the holds' own changes. A provider that hangs keeps a refund for
 * up to 30 s, and the statements around it are short: more at once than there are connections.
 */
const effects = 10;
const effectConnections = 2;

const { settings, providers } = await settingsOrExit();
const log = openLog(settings.logLevel);
const logger = temporalLogger(log);
Runtime.install({
  logger,
  telemetryOptions: { logging: { filter: { core: 'WARN', other: 'ERROR' }, forward: {} } },
  // Signals are ours: the database closes after the last activity.
  shutdownSignals: [],
});
const stopping = listenForStop(settings);

try {
  await work();
  log.info('worker stopped');
  process.exitCode = 0;
} catch (error) {
  if (stopping.signal.aborted) log.info('worker stopped before it was ready');
  else if (error instanceof SchemaMismatch) log.fatal(error.message);
  else log.fatal({ err: error }, 'worker failed');
  process.exitCode = stopping.signal.aborted ? 0 : 1;
}
// A lost connection to a server that is away may keep handles open for minutes.
setTimeout(() => process.exit(), 500).unref();

async function work(): Promise<void> {
  const db = openDatabase({
    url: settings.databaseUrl,
    takeAppRole: settings.takeAppRole,
    connections: {
      claims: settings.claimConnections,
      changes: settings.changeConnections + effectConnections,
      reads: 1,
    },
    stockLockTimeoutMs: settings.stockLockTimeoutMs,
    applicationName: 'tahan worker',
  });
  const wait = (what: string) => ({
    signal: stopping.signal,
    isFatal: (error: unknown) => error instanceof SchemaMismatch,
    failed: (error: unknown, nextTryInMs: number) =>
      log.warn({ err: error, nextTryInMs }, `waiting for ${what}`),
  });
  try {
    const [workflowBundle] = await Promise.all([
      workflowCode(settings.workflowBundle, logger),
      patiently(() => checkSchema(db), wait('Postgres')),
    ]);
    const { namespace, ...address } = temporalOptions(temporalSettings());
    const connection = await patiently(() => NativeConnection.connect(address), wait('Temporal'));
    const workers = await patiently(
      () =>
        createWorkers({
          connection,
          namespace,
          prefix: settings.taskQueuePrefix,
          activities: createActivities(db, providers, {
            claims: settings.claimConnections,
            changes: settings.changeConnections,
          }),
          workflowBundle,
          effects,
          cachedHolds: settings.cachedHolds,
          endsPerSecond: settings.endsPerSecond,
        }),
      wait(`namespace ${namespace}`),
    );
    void stopping.why.then((reason) => {
      log.info({ reason }, 'worker stopping');
      workers.stop();
    });
    const running = workers.run();
    if (stopping.signal.aborted) workers.stop();
    log.info(
      { ready: true, taskQueues: taskQueues(settings.taskQueuePrefix), namespace },
      'worker ready',
    );
    const started = lookAround(db).catch((error: unknown) =>
      stopping.signal.aborted ? undefined : log.error({ err: error }, 'start check failed'),
    );
    await running;
    await started;
    await connection.close();
  } finally {
    await db.close();
  }
}

/** Once per start: whether operators can search, and money that nobody has decided about or sent. */
async function lookAround(db: Database): Promise<void> {
  const temporal = connect(temporalSettings());
  const holds: Holds = {
    client: temporal.client,
    prefix: settings.taskQueuePrefix,
    indexed: false,
  };
  const wait = {
    signal: stopping.signal,
    failed: (error: unknown, nextTryInMs: number) =>
      log.warn({ err: error, nextTryInMs }, 'unsettled payments: trying again'),
  };
  try {
    const attributes = await checkSearchAttributes(temporal.client);
    if (attributes.outcome !== 'REGISTERED')
      log.warn(attributes, 'search attributes are not registered: holds go on without them');
    const payments = await patiently(() => listUnsettledPayments(db), wait);
    for (const { holdId, ...payment } of payments) {
      await patiently(async () => {
        const sent = await sendSettle(holds, holdId, payment, { withinMs: 5000 });
        if (sent.outcome === 'NO_ANSWER' || sent.outcome === 'UNAVAILABLE')
          throw new Error(sent.detail);
        log.info({ holdId, payment, outcome: sent.outcome }, 'unsettled payment of an ended hold');
      }, wait);
    }
    for (const { holdId, ...refund } of await patiently(() => listUnsentRefunds(db), wait)) {
      await patiently(async () => {
        const sent = await sendRefund(holds, holdId, refund, { withinMs: 5000 });
        if (sent.outcome !== 'SENT') throw new Error(sent.detail);
        log.info({ holdId, refund }, 'refund of a return that is still to be sent');
      }, wait);
    }
  } finally {
    await temporal.close();
  }
}

function temporalSettings() {
  return { address: settings.temporalAddress, namespace: settings.temporalNamespace };
}

async function settingsOrExit(): Promise<{
  settings: WorkerSettings;
  providers: PaymentProviders;
}> {
  try {
    const settings = readSettings();
    return { settings, providers: await providersOf(settings) };
  } catch (error) {
    if (!(error instanceof InvalidSettings)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}
