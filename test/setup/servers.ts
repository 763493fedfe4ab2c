/**
 * The servers of one test run, each started once, on first need, however many projects ask. They run
 * under watchers (cli/watcher.mjs), so they end with the run, also when vitest is killed with -9.
 */
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from '../../cli/build.mjs';
import { hasWorkflows, workflowBundle } from '../../cli/bundle.js';
import { postgresAccount } from '../../cli/servers/account.js';
import { pickPorts } from '../../cli/servers/ports.js';
import { startPostgres, type Postgres } from '../../cli/servers/postgres.js';
import {
  embeddedPostgres,
  systemPostgres,
  type PostgresBinaries,
} from '../../cli/servers/postgresBinaries.js';
import { startTemporal, type Temporal } from '../../cli/servers/temporal.js';
import { findTemporal } from '../../cli/servers/temporalBinary.js';
import type { Watched } from '../../cli/servers/watch.js';

export interface Servers {
  postgres?: Promise<Postgres[]>;
  temporal?: Promise<Temporal>;
  dist?: Promise<string>;
  bundle?: Promise<string>;
}

// Each vitest project loads this file on its own; what is started must be known to all of them.
const key = Symbol.for('tahan.test.servers');
const shared = globalThis as { [key]?: Servers };
const servers = (shared[key] ??= {});

export function allPostgres(): Promise<Postgres[]> {
  return (servers.postgres ??= startAllPostgres());
}

export function temporal(): Promise<Temporal> {
  return (servers.temporal ??= startTestTemporal());
}

/** Builds dist if it is stale, and answers with tsc's errors. */
export function builtDist(): Promise<string> {
  return (servers.dist ??= buildAll());
}

/** The workflow bundle; '' while there are no workflows. */
export function bundle(): Promise<string> {
  return (servers.bundle ??= bundleAll());
}

/** Ends what is running; safe to call by every project. */
export async function endServers(): Promise<void> {
  const { postgres, temporal } = servers;
  delete servers.postgres;
  delete servers.temporal;
  const started: (Watched | undefined)[] = [
    ...((await settled(postgres)) ?? []),
    await settled(temporal),
  ];
  await Promise.all(started.map(async (server) => server?.stop()));
}

/** Postgres 18 from npm, and each major that the system has: TAHAN_TEST_POSTGRES=18 picks one. */
async function startAllPostgres(): Promise<Postgres[]> {
  const account = postgresAccount(say);
  const only = process.env['TAHAN_TEST_POSTGRES'];
  const present = new Map<number, PostgresBinaries>();
  for (const binaries of [embeddedPostgres(account, say), ...systemPostgres()]) {
    if (!present.has(binaries.major)) present.set(binaries.major, binaries);
  }
  const wanted = [...present.values()].filter(({ major }) => !only || only === String(major));
  const ports = await pickPorts(Object.fromEntries(wanted.map(({ major }) => [major, 0])));
  return Promise.all(
    wanted.map((binaries) =>
      startPostgres({
        binaries,
        account,
        home: temporaryFolder(`tahan-test-postgres-${binaries.major}-`),
        port: ports[binaries.major]!.number,
        durable: false,
        temporary: true,
        say: () => undefined,
      }),
    ),
  );
}

/**
 * A history is deleted once the queues have acknowledged its end, which the server notes every 30 s
 * otherwise. Nothing else waits for that note.
 */
const deletesSoon = {
  'history.transferProcessorUpdateAckInterval': '"1s"',
  'history.visibilityProcessorUpdateAckInterval': '"1s"',
  'history.timerProcessorUpdateAckInterval': '"1s"',
};

async function startTestTemporal(): Promise<Temporal> {
  const binary = await findTemporal({ say });
  const { temporal } = await pickPorts({ temporal: 0 });
  const folder = temporaryFolder('tahan-test-temporal-');
  return startTemporal({
    binary,
    port: temporal.number,
    logFile: join(folder, 'temporal.log'),
    temporary: folder,
    dynamicConfig: deletesSoon,
  });
}

/** tsc's words for a module or a name that isn't there, in a workflow file. */
const missingImport = /^workflows\/.*error TS(2305|2307|2614|2724):/m;

async function bundleAll(): Promise<string> {
  if (missingImport.test(await builtDist())) {
    throw new Error('A workflow imports what does not exist, see the type errors above.');
  }
  return hasWorkflows() ? workflowBundle(say) : '';
}

/**
 * Wrong types are the type check's business and are only shown here, except where they are dangerous:
 * an import that does not exist reaches a workflow as undefined.
 */
async function buildAll(): Promise<string> {
  const errors = await build(say);
  if (errors) say(`type errors:\n${errors}`);
  return errors;
}

/** The postgres user must be able to pass through; what is inside has modes of its own. */
function temporaryFolder(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  chmodSync(folder, 0o711);
  return folder;
}

function settled<T>(promise: Promise<T> | undefined): Promise<T | undefined> {
  return Promise.resolve(promise).catch(() => undefined);
}

function say(step: string): void {
  process.stderr.write(`[setup] ${step}\n`);
}
