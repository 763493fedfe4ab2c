/**
 * The sandbox as a process of its own: `npm start` runs it. Set by the environment alone; it ends by
 * SIGTERM, SIGINT, or with its parent. Only for a demonstration: it moves no money, and whoever
 * reaches it can confirm any hold.
 */
import { pino } from 'pino';
import { z } from 'zod';
import { listenForStop } from '../../worker/stopping.js';
import { startSandbox } from './sandbox.js';

const text = z.string().min(1);
const environment = z.object({
  TAHAN_DEMO: z.literal('1', { error: 'must be 1: the sandbox is for demonstrations only' }),
  PORT: z.coerce.number().int().min(0).max(65_535).default(3010),
  /** As the API reads them; the first one signs. */
  TAHAN_WEBHOOK_SECRETS: text,
  TAHAN_REFUND_SECRET: text,
  TAHAN_API_URL: z.url(),
  /** To ask for a hold's end and price. */
  TAHAN_SHOP_KEY: text.optional(),
  /** The journal; without it a restart forgets everything. */
  TAHAN_SANDBOX_FILE: text.optional(),
  TAHAN_SANDBOX_SEED: z.coerce.number().int().min(0).optional(),
  TAHAN_EXIT_WITH_PARENT: z.string().default(''),
});

const read = environment.safeParse(process.env);
if (!read.success) {
  const lines = read.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`);
  process.stderr.write(`The sandbox can not start:\n${lines.join('\n')}\n`);
  process.exit(2);
}
const found = read.data;
const stopping = listenForStop({
  exitWithParent: ['1', 'true'].includes(found.TAHAN_EXIT_WITH_PARENT),
});
const logger = pino({
  name: 'tahan-sandbox',
  base: null,
  timestamp: pino.stdTimeFunctions.isoTime,
});
const sandbox = await startSandbox({
  port: found.PORT,
  secret: found.TAHAN_WEBHOOK_SECRETS.split(/[\s,]+/).find((secret) => secret !== '') ?? '',
  refundSecret: found.TAHAN_REFUND_SECRET,
  deliverTo: found.TAHAN_API_URL,
  shopKey: found.TAHAN_SHOP_KEY,
  file: found.TAHAN_SANDBOX_FILE,
  seed: found.TAHAN_SANDBOX_SEED,
  log: (fact) => logger.info(fact),
});
logger.info({ ready: true, url: sandbox.url, seed: sandbox.seed }, 'sandbox ready');
logger.info({ reason: await stopping.why }, 'sandbox stopping');
await sandbox.close();
process.exit();
