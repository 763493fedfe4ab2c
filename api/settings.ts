import { z } from 'zod';
import { stockLockTimeoutMs } from '../db/database.js';

const text = z.string().min(1);
const flag = z
  .enum(['', '0', '1', 'false', 'true'])
  .default('')
  .transform((value) => value === '1' || value === 'true');

/** What stands between spaces or commas. */
const separated = (value: string) => value.split(/[\s,]+/).filter((one) => one !== '');

/**
 * Standard Webhooks secrets, separated by spaces or commas: several are valid at once, so that they
 * can be rotated. 24 to 64 random bytes in base64, with or without `whsec_`.
 */
const webhookSecrets = z
  .string({ error: 'is missing: without it anybody could confirm a hold' })
  .transform(separated)
  .refine((secrets) => secrets.length > 0, {
    error: 'is empty: without it anybody could confirm a hold',
  })
  .refine((secrets) => secrets.every(isSecret), {
    error:
      'must hold secrets of 24 to 64 bytes in base64, such as whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  });

/** Requests in 10 s, or `off`. Not 0: it would refuse all, or none, depending on who reads it. */
const rate = (fallback: string) =>
  z
    .string()
    .default(fallback)
    .transform((value) => value.trim())
    .refine((value) => value === 'off' || /^[1-9]\d{0,6}$/.test(value), {
      error: 'must be "off" or a whole number from 1 to 9999999: so many within 10 seconds',
    })
    .transform((value) => (value === 'off' ? null : Number(value)));

function isSecret(secret: string): boolean {
  const base64 = secret.replace(/^whsec_/, '');
  const bytes = Buffer.from(base64, 'base64');
  return bytes.length >= 24 && bytes.length <= 64 && bytes.toString('base64') === base64;
}

const environment = z.object({
  HOST: text.default('127.0.0.1'),
  PORT: z.coerce.number().int().min(0).max(65_535).default(3000),
  /** The owner's address; the connection then takes the app's role. */
  DATABASE_URL: text.optional(),
  /** The app's own address, in place of it. */
  TAHAN_APP_DATABASE_URL: text.optional(),
  TAHAN_WEBHOOK_SECRETS: webhookSecrets,
  /** Signing secrets of Stripe's webhook endpoints; several are valid at once. Without one, none is taken. */
  STRIPE_WEBHOOK_SECRETS: z
    .string()
    .default('')
    .transform(separated)
    .refine((secrets) => secrets.every((secret) => /^whsec_\w{16,}$/.test(secret)), {
      error: 'must hold secrets that begin with whsec_, as Stripe shows them',
    }),
  /** At most, whatever the engine is seen to finish. */
  TAHAN_CLAIMS_IN_FLIGHT: z.coerce.number().int().min(1).max(100_000).default(500),
  /** Requests of one API key in 10 s. Off by default: in a flash sale one shop key asks 2,000 times a second. */
  TAHAN_RATE_PER_KEY: rate('off'),
  /** Checkouts of one buyer in 10 s. */
  TAHAN_RATE_PER_BUYER: rate('60'),
  /** Streams of availability at once, some 20 KB each. */
  TAHAN_STREAMS: z.coerce.number().int().min(1).max(100_000).default(1000),
  TAHAN_LOG_LEVEL: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info'),
  TAHAN_EXIT_WITH_PARENT: flag,
});

/** What the routes need to know. */
export interface ApiSettings {
  webhookSecrets: string[];
  stripeWebhookSecrets: string[];
  claimsInFlight: number;
  /** Requests in 10 s; null: no limit. */
  rates: { perKey: number | null; perBuyer: number | null };
  streams: number;
}

export interface Settings extends ApiSettings {
  host: string;
  port: number;
  databaseUrl: string;
  takeAppRole: boolean;
  stockLockTimeoutMs: number;
  logLevel: string;
  exitWithParent: boolean;
}

/** Thrown with one line for each variable that must be corrected; their values are not repeated. */
export class InvalidSettings extends Error {
  override readonly name = 'InvalidSettings';
}

export function readSettings(env: NodeJS.ProcessEnv = process.env): Settings {
  const read = environment.safeParse(env);
  if (!read.success) {
    throw new InvalidSettings(
      read.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`).join('\n'),
    );
  }
  const found = read.data;
  const databaseUrl = found.TAHAN_APP_DATABASE_URL ?? found.DATABASE_URL;
  if (databaseUrl === undefined) {
    throw new InvalidSettings('DATABASE_URL is missing: the address of Postgres');
  }
  return {
    host: found.HOST,
    port: found.PORT,
    databaseUrl,
    takeAppRole: found.TAHAN_APP_DATABASE_URL === undefined,
    webhookSecrets: found.TAHAN_WEBHOOK_SECRETS,
    stripeWebhookSecrets: found.STRIPE_WEBHOOK_SECRETS,
    claimsInFlight: found.TAHAN_CLAIMS_IN_FLIGHT,
    rates: { perKey: found.TAHAN_RATE_PER_KEY, perBuyer: found.TAHAN_RATE_PER_BUYER },
    streams: found.TAHAN_STREAMS,
    stockLockTimeoutMs: stockLockTimeout(env),
    logLevel: found.TAHAN_LOG_LEVEL,
    exitWithParent: found.TAHAN_EXIT_WITH_PARENT,
  };
}

/** TAHAN_STOCK_LOCK_TIMEOUT_SECONDS has its rule in db/, where it is applied. */
function stockLockTimeout(env: NodeJS.ProcessEnv): number {
  try {
    return stockLockTimeoutMs(env);
  } catch (error) {
    throw new InvalidSettings((error as Error).message);
  }
}
