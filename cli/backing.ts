import { randomBytes } from 'node:crypto';
import { basename, join, relative } from 'node:path';
import { loadClientConfigProfile } from '@temporalio/envconfig';
import { createDatabase, dropDatabase } from '../db/server.js';
import { connect } from '../workflows/contract.js';
import type { Report } from './report.mjs';
import { root } from './root.js';
import { postgresAccount } from './servers/account.js';
import { startPostgres } from './servers/postgres.js';
import { embeddedPostgres } from './servers/postgresBinaries.js';
import { startTemporal } from './servers/temporal.js';
import { findTemporal } from './servers/temporalBinary.js';
import type { Watched } from './servers/watch.js';

/** What worker and API stand on: Postgres and Temporal, ours or given by the environment. */
export interface Site {
  fresh: boolean;
  /** Data, logs and secrets of this run. */
  folder: string;
  report: Report;
  /** The lock of a child's watcher, unless the data is temporary. */
  lock: (role: 'postgres' | 'temporal') => string | undefined;
  /** Takes a child over: it is stopped with the others, and missed when it ends by itself. */
  own: (role: 'postgres' | 'temporal', child: Watched) => void;
  /** Something to do after everything has stopped. */
  afterwards: (work: () => Promise<void>) => void;
}

/** Where the database is: the owner's address and, if given, the app's own. */
export interface Addresses {
  DATABASE_URL: string;
  TAHAN_APP_DATABASE_URL: string | undefined;
}

export function givenDatabase(): string | undefined {
  return process.env['DATABASE_URL'] || undefined;
}

/** What names a Temporal server of the user's own: the environment or a profile. */
export function givenTemporal(): string | undefined {
  if (process.env['TEMPORAL_ADDRESS']) return 'TEMPORAL_ADDRESS';
  const profile = process.env['TEMPORAL_PROFILE'];
  const { address } = loadClientConfigProfile(profile ? { profile } : {});
  // Set but empty is how many tools say "not set".
  return address ? `the Temporal profile ${profile || '"default"'}` : undefined;
}

export async function database(site: Site, port: number): Promise<Addresses> {
  const given = givenDatabase();
  if (given === undefined) return embedded(site, port);
  const app = process.env['TAHAN_APP_DATABASE_URL'] || undefined;
  if (!site.fresh) {
    const { hostname, port: number, pathname } = new URL(given);
    const place = `${hostname}:${number || 5432}${pathname}`;
    site.report.step('postgres', `given by DATABASE_URL: ${place}`, { given: true });
    return { DATABASE_URL: given, TAHAN_APP_DATABASE_URL: app };
  }
  // Temporary data on a given server is a database of its own, dropped in the end.
  const name = `tahan_fresh_${randomBytes(4).toString('hex')}`;
  await createDatabase(given, name);
  site.afterwards(() => dropDatabase(given, name));
  site.report.step('postgres', `given by DATABASE_URL, temporary database ${name}`, { name });
  return {
    DATABASE_URL: withDatabase(given, name),
    TAHAN_APP_DATABASE_URL: app && withDatabase(app, name),
  };
}

async function embedded(site: Site, port: number): Promise<Addresses> {
  const { fresh, folder, report } = site;
  const say = (text: string) => report.step('postgres', text);
  const account = postgresAccount(say);
  const binaries = embeddedPostgres(account, say);
  const server = await startPostgres({
    binaries,
    account,
    // The name alone is kept where the postgres user can't enter this folder: it must tell runs apart.
    home: join(folder, fresh ? `postgres-${basename(folder)}` : 'postgres'),
    port,
    durable: !fresh,
    temporary: fresh,
    remove: folder,
    lock: site.lock('postgres'),
    say,
  });
  site.own('postgres', server);
  const { version } = binaries;
  report.step('postgres', `${version} on 127.0.0.1:${port}, data in ${shown(server.home)}`, {
    version,
    port,
    home: server.home,
  });
  await createDatabase(server.url('postgres'), 'tahan');
  return { DATABASE_URL: server.url('tahan'), TAHAN_APP_DATABASE_URL: undefined };
}

export interface TemporalPlace {
  /** What leads worker and API there; nothing where the given environment does. */
  environment: NodeJS.ProcessEnv;
  ui: string | undefined;
}

export async function temporal(site: Site, port: number, uiPort: number): Promise<TemporalPlace> {
  const { fresh, folder, report } = site;
  const given = givenTemporal();
  if (given !== undefined) {
    await reach(given, report);
    // On a server that others use too, temporary data means task queues of its own.
    const prefix = `fresh-${randomBytes(4).toString('hex')}-`;
    return { environment: fresh ? { TAHAN_TASK_QUEUE_PREFIX: prefix } : {}, ui: undefined };
  }
  const binary = await findTemporal({ say: (text) => report.step('temporal', text) });
  const data = join(folder, 'temporal');
  const server = await startTemporal({
    binary,
    port,
    uiPort,
    dataFile: join(data, 'temporal.db'),
    logFile: join(folder, 'logs', 'temporal.log'),
    lock: site.lock('temporal'),
    ...(fresh && { temporary: data }),
  });
  site.own('temporal', server);
  const { address, uiUrl: ui } = server;
  const { version, origin } = binary;
  const place = fresh ? '' : `, data in ${shown(data)}`;
  report.step('temporal', `${version} from ${origin}, on ${address}${place}`, {
    version,
    origin,
    address,
    ui,
  });
  return { environment: { TEMPORAL_ADDRESS: address, TEMPORAL_NAMESPACE: 'default' }, ui };
}

async function reach(given: string, report: Report): Promise<void> {
  const server = connect();
  const { client, address, namespace } = server;
  try {
    await client.connection.withDeadline(Date.now() + 8_000, () =>
      client.workflowService.describeNamespace({ namespace }),
    );
    const place = `${address}, namespace ${namespace}`;
    report.step('temporal', `given by ${given}: ${place}`, { given, address, namespace });
  } catch (error) {
    const place = `Temporal at ${address} (given by ${given}), namespace ${namespace}`;
    throw new Error(`${place}, does not answer: ${String(error)}`, { cause: error });
  } finally {
    await server.close();
  }
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  return changed.href;
}

/** Paths inside the clone are shown without the clone's own. */
export function shown(path: string): string {
  const inside = relative(root, path);
  return inside.startsWith('..') ? path : inside;
}
