/**
 * `npm run adopt`: starts the workflow of every HELD row that has none. After workflows were
 * terminated, or after the database was restored. Safe to run twice, and while the shop sells.
 */
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { openDatabase } from '../db/database.js';
import type { Database } from '../db/database.js';
import { listOpenHolds } from '../db/openHolds.js';
import type { OpenHold } from '../db/openHolds.js';
import {
  adoptionRequest,
  checkSearchAttributes,
  connect,
  send,
  taskQueuePrefix,
} from '../workflows/contract.js';
import type { Holds } from '../workflows/contract.js';
import { readSettings } from '../worker/settings.js';

export interface Adopted {
  started: number;
  running: number;
  /** Holds whose workflow could not be started; the reason of the first. */
  failed: number;
  reason?: string;
}

const pageSize = 200;
const atOnce = 10;

export async function adopt(db: Database, holds: Holds): Promise<Adopted> {
  const adopted: Adopted = { started: 0, running: 0, failed: 0 };
  for (let after: string | null = null; ;) {
    const page: OpenHold[] = await listOpenHolds(db, after, pageSize);
    for (let at = 0; at < page.length; at += atOnce)
      await Promise.all(page.slice(at, at + atOnce).map((row) => adoptOne(holds, row, adopted)));
    after = page.at(-1)?.holdId ?? null;
    if (page.length < pageSize) return adopted;
  }
}

async function adoptOne(holds: Holds, row: OpenHold, adopted: Adopted): Promise<void> {
  const request = adoptionRequest(row, holds);
  const sent = await send(holds, request, { kind: 'adopt' }, { withinMs: 10_000 });
  if (sent.outcome === 'ANSWERED') {
    adopted[sent.answer === 'STARTED' ? 'started' : 'running'] += 1;
  } else {
    adopted.failed += 1;
    adopted.reason ??= 'detail' in sent ? sent.detail : sent.outcome;
  }
}

async function main(): Promise<void> {
  const settings = readSettings();
  const db = openDatabase({
    url: settings.databaseUrl,
    takeAppRole: settings.takeAppRole,
    applicationName: 'tahan adopt',
  });
  const temporal = connect({
    address: settings.temporalAddress,
    namespace: settings.temporalNamespace,
  });
  try {
    const attributes = await checkSearchAttributes(temporal.client);
    const adopted = await adopt(db, {
      client: temporal.client,
      prefix: taskQueuePrefix(),
      indexed: attributes.outcome === 'REGISTERED',
    });
    const { started, running, failed, reason } = adopted;
    console.log(`${started} started, ${running} already running, ${failed} failed`);
    if (failed > 0) {
      console.error(`first failure: ${reason ?? 'unknown'}`);
      process.exitCode = 1;
    }
  } finally {
    await Promise.all([temporal.close(), db.close()]);
  }
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) {
  await main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
