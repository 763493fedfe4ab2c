import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { postgresAccount } from '../../cli/servers/account.js';
import { pickPorts } from '../../cli/servers/ports.js';
import { startPostgres } from '../../cli/servers/postgres.js';
import type { Postgres } from '../../cli/servers/postgres.js';
import { embeddedPostgres } from '../../cli/servers/postgresBinaries.js';
import { startTemporal } from '../../cli/servers/temporal.js';
import type { Temporal } from '../../cli/servers/temporal.js';
import { findTemporal } from '../../cli/servers/temporalBinary.js';

/** A Postgres and a Temporal of the test's own, which may be stopped and killed: nobody else works on them. */
export interface OwnServers {
  postgres: Postgres;
  temporal: Temporal;
  /** What `openSystem` takes. */
  places: { postgres: { version: number; url: string }; temporalAddress: string };
  /** Starts one that was killed on its data and its port again. */
  startPostgres(): Promise<void>;
  startTemporal(): Promise<void>;
  close(): Promise<void>;
}

export async function ownServers(): Promise<OwnServers> {
  const say = () => undefined;
  const account = postgresAccount(say);
  const folder = mkdtempSync(join(tmpdir(), 'tahan-own-'));
  chmodSync(folder, 0o711); // the postgres user passes through
  const ports = await pickPorts({ postgres: 0, temporal: 0 });
  const postgresOptions = {
    binaries: embeddedPostgres(account, say),
    account,
    home: join(folder, 'postgres'),
    port: ports.postgres.number,
    durable: true, // what was answered must survive a kill -9
    say,
  };
  const temporalOptions = {
    binary: await findTemporal({ say }),
    port: ports.temporal.number,
    dataFile: join(folder, 'temporal.db'),
    logFile: join(folder, 'temporal.log'),
  };
  const [postgres, temporal] = await Promise.all([
    startPostgres(postgresOptions),
    startTemporal(temporalOptions),
  ]);
  const servers: OwnServers = {
    postgres,
    temporal,
    places: {
      postgres: { version: postgres.major, url: postgres.url('postgres') },
      temporalAddress: temporal.address,
    },
    async startPostgres() {
      servers.postgres = await startPostgres(postgresOptions);
    },
    async startTemporal() {
      servers.temporal = await startTemporal(temporalOptions);
    },
    async close() {
      for (const { pid } of [servers.postgres, servers.temporal]) signalAll(pid, 'SIGCONT');
      await Promise.all([servers.postgres.stop(), servers.temporal.stop()]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return servers;
}

/** Sends a signal to a process and to all that it has started: Postgres is one process per connection. */
export function signalAll(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    return; // it has ended
  }
  for (const child of childrenOf(pid)) signalAll(child, signal);
}

function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((each) => Number.isInteger(each) && parentOf(each) === pid);
}

function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
  } catch {
    return undefined; // it has ended
  }
}
