import { z } from 'zod';
import { stockLockTimeoutMs } from '../db/database.js';

const text = z.string().min(1);
const count = (usual: number, most: number) =>
  z.coerce.number().int().min(1).max(most).default(usual);
const flag = z
  .enum(['', '0', '1', 'false', 'true'])
  .default('')
  .transform((value) => value === '1' || value === 'true');

const environment = z.object({
  /** The owner's address; the connection then takes the app's role. */
  DATABASE_URL: text.optional(),
  /** The app's own address, in place of it. */
  TAHAN_APP_DATABASE_URL: text.optional(),
  TEMPORAL_ADDRESS: text.optional(),
  TEMPORAL_NAMESPACE: text.optional(),
  TAHAN_TASK_QUEUE_PREFIX: z.string().default(''),
  /** A bundle made before; without it the workflows are bundled at the start (8 s). */
  TAHAN_WORKFLOW_BUNDLE: text.optional(),
  /** Claims at once: one hot bin serves 780 to 1,010 a second at 4 connections, 600 to 700 at 16. */
  TAHAN_CLAIM_CONNECTIONS: count(4, 100),
  /** Confirmations, expiries, cancels and extensions at once. */
  TAHAN_CHANGE_CONNECTIONS: count(4, 100),
  /** Open holds kept in memory, about 0.25 MB each; others are read again when something happens. */
  TAHAN_CACHED_HOLDS: count(1000, 100_000),
  /** Ends of holds that a worker looks at in a second; more when it claims more (activities/turns.ts). */
  TAHAN_ENDS_PER_SECOND: count(10, 10_000),
  /** The provider that is asked for refunds (docs/payment-provider.md), and the secret shared with it. */
  TAHAN_REFUND_URL: text.optional(),
  TAHAN_REFUND_SECRET: text.optional(),
  /** For the refunds of payments that Stripe reported. */
  STRIPE_API_KEY: z
    .string()
    .regex(/^(sk|rk)_(test|live)_\w+$/, { error: 'must begin with sk_ or rk_' })
    .optional(),
  TAHAN_LOG_LEVEL: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info'),
  TAHAN_EXIT_WITH_PARENT: flag,
});

export interface WorkerSettings {
  databaseUrl: string;
  takeAppRole: boolean;
  stockLockTimeoutMs: number;
  temporalAddress: string | undefined;
  temporalNamespace: string | undefined;
  taskQueuePrefix: string;
  workflowBundle: string | undefined;
  claimConnections: number;
  changeConnections: number;
  cachedHolds: number;
  endsPerSecond: number;
  refunds: { url: string; secret: string } | undefined;
  stripeApiKey: string | undefined;
  logLevel: string;
  exitWithParent: boolean;
}

/** Thrown with one line for each variable that must be corrected; their values are not repeated. */
export class InvalidSettings extends Error {
  override readonly name = 'InvalidSettings';
}

export function readSettings(env: NodeJS.ProcessEnv = process.env): WorkerSettings {
  const read = environment.safeParse(env);
  if (!read.success) {
    throw new InvalidSettings(
      read.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`).join('\n'),
    );
  }
  const found = read.data;
  const databaseUrl = found.TAHAN_APP_DATABASE_URL ?? found.DATABASE_URL;
  if (databaseUrl === undefined)
    throw new InvalidSettings('DATABASE_URL is missing: the address of Postgres');
  return {
    databaseUrl,
    takeAppRole: found.TAHAN_APP_DATABASE_URL === undefined,
    stockLockTimeoutMs: stockLockTimeout(env),
    temporalAddress: found.TEMPORAL_ADDRESS,
    temporalNamespace: found.TEMPORAL_NAMESPACE,
    taskQueuePrefix: found.TAHAN_TASK_QUEUE_PREFIX,
    workflowBundle: found.TAHAN_WORKFLOW_BUNDLE,
    claimConnections: found.TAHAN_CLAIM_CONNECTIONS,
    changeConnections: found.TAHAN_CHANGE_CONNECTIONS,
    cachedHolds: found.TAHAN_CACHED_HOLDS,
    endsPerSecond: found.TAHAN_ENDS_PER_SECOND,
    refunds: refundsOf(found.TAHAN_REFUND_URL, found.TAHAN_REFUND_SECRET),
    stripeApiKey: found.STRIPE_API_KEY,
    logLevel: found.TAHAN_LOG_LEVEL,
    exitWithParent: found.TAHAN_EXIT_WITH_PARENT,
  };
}

function refundsOf(url: string | undefined, secret: string | undefined) {
  if (url === undefined && secret === undefined) return undefined;
  if (url === undefined || secret === undefined)
    throw new InvalidSettings('TAHAN_REFUND_URL and TAHAN_REFUND_SECRET belong together');
  return { url, secret };
}

/** TAHAN_STOCK_LOCK_TIMEOUT_SECONDS has its rule in db/, where it is applied. */
function stockLockTimeout(env: NodeJS.ProcessEnv): number {
  try {
    return stockLockTimeoutMs(env);
  } catch (error) {
    throw new InvalidSettings((error as Error).message);
  }
}
