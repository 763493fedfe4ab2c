import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { Connection } from '@temporalio/client';
import type { TemporalBinary } from './temporalBinary.js';
import { startWatched, whenReady, type Watched } from './watch.js';

/** What an operator filters holds by. An own cluster needs the same: see README. */
export const searchAttributes = {
  HoldSkus: 'KeywordList',
  HoldBuyer: 'Keyword',
  HoldStatus: 'Keyword',
} as const;

/**
 * One partition per task queue: the stock setting hides 50 ms per task on one machine (99 against 45
 * ms for a regular activity). The limits are meant for clusters that many share.
 */
const dynamicConfig = {
  'matching.numTaskqueueReadPartitions': 1,
  'matching.numTaskqueueWritePartitions': 1,
  'frontend.rps': 100_000,
  'frontend.namespaceRPS': 100_000,
  'frontend.namespaceCount': 100_000,
  'matching.rps': 100_000,
  'history.rps': 100_000,
};

export interface TemporalOptions {
  binary: TemporalBinary;
  port: number;
  /** Missing: no UI, as in tests. */
  uiPort?: number;
  /** Missing: workflows are kept in memory only. */
  dataFile?: string;
  logFile: string;
  /** A folder that goes with the server, also after kill -9 of the launcher. */
  temporary?: string;
  /** Further dynamic configuration. */
  dynamicConfig?: Record<string, number | string>;
  /** Held by the watcher as long as it lives. */
  lock?: string | undefined;
}

export interface Temporal extends Watched {
  address: string;
  uiUrl?: string;
}

/** Starts the Temporal development server on 127.0.0.1 and waits until it takes requests. */
export async function startTemporal(options: TemporalOptions): Promise<Temporal> {
  const { port, uiPort, dataFile, logFile } = options;
  if (dataFile) mkdirSync(dirname(dataFile), { recursive: true });
  const server = await startWatched({
    command: options.binary.path,
    args: serverArguments(options),
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'] },
    logFile,
    signal: 'SIGTERM',
    graceMs: 5_000,
    lock: options.lock,
    remove: options.temporary ? [options.temporary] : [],
  });
  const address = `127.0.0.1:${port}`;
  await whenReady('The Temporal server', server, () => serves(address));
  return { ...server, address, ...(uiPort && { uiUrl: `http://127.0.0.1:${uiPort}` }) };
}

function serverArguments({ port, uiPort, dataFile, ...rest }: TemporalOptions): string[] {
  const args = ['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port)];
  if (uiPort) args.push('--ui-port', String(uiPort), '--ui-disable-news-fetch');
  else args.push('--headless');
  if (dataFile) args.push('--db-filename', dataFile);
  args.push('--sqlite-pragma', 'journal_mode=WAL', '--sqlite-pragma', 'synchronous=NORMAL');
  for (const [name, type] of Object.entries(searchAttributes)) {
    args.push('--search-attribute', `${name}=${type}`);
  }
  for (const [name, value] of Object.entries({ ...dynamicConfig, ...rest.dynamicConfig })) {
    args.push('--dynamic-config-value', `${name}=${value}`);
  }
  return [...args, '--log-level', 'error', '--log-format', 'json'];
}

/** The namespace comes last: a server that only answers health checks refuses the first start. */
async function serves(address: string): Promise<boolean> {
  let connection: Connection | undefined;
  try {
    connection = await Connection.connect({ address, connectTimeout: 1_000 });
    await connection.withDeadline(Date.now() + 2_000, () =>
      connection!.workflowService.describeNamespace({ namespace: 'default' }),
    );
    return true;
  } catch {
    return false;
  } finally {
    await connection?.close();
  }
}
