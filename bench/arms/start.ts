import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { workflowBundle } from '../../cli/bundle.js';
import { prepare } from '../../cli/prepare.mjs';
import { root } from '../../cli/root.js';
import { pickPorts } from '../../cli/servers/ports.js';
import { startTemporal } from '../../cli/servers/temporal.js';
import { findTemporal } from '../../cli/servers/temporalBinary.js';
import { startWatched, whenReady } from '../../cli/servers/watch.js';
import type { Watched } from '../../cli/servers/watch.js';
import { openDatabase } from '../../db/database.js';
import { addKey, newKey } from '../../db/keys.js';
import { postgresPid } from '../database.js';
import type { ArmOptions, FloorCounts, Kind, Running } from './arm.js';

/** What stands in the environment may be tried out; what is not named here is not passed on. */
export const passedOn = [
  'TAHAN_CLAIMS_IN_FLIGHT',
  'TAHAN_CLAIM_CONNECTIONS',
  'TAHAN_CHANGE_CONNECTIONS',
  'TAHAN_CACHED_HOLDS',
  'TAHAN_ENDS_PER_SECOND',
  'TAHAN_LOG_LEVEL',
];

/** The files of each arm's processes: ours as it is built, the others from the sources. */
const files = {
  ours: { api: 'dist/api/main.js', worker: 'dist/worker/main.js' },
  floor: { api: 'bench/arms/floorApi.ts', worker: 'bench/arms/floorWorker.ts' },
  'no engine': { api: 'bench/arms/noEngine.ts' },
} as const;

/** Of the last run of each arm: `.tahan/logs/bench-ours-api.log`. */
function freshLog(kind: Kind, name: string): string {
  const file = join(root, '.tahan', 'logs', `bench-${kind.replace(' ', '-')}-${name}.log`);
  rmSync(file, { force: true });
  return file;
}

/**
 * Starts an arm on fresh data. Each of its processes has a watcher, which ends it when the bench is
 * gone, however that ended; Temporal's data goes with it.
 *
 * @param databaseUrl of the owner; the floor has none
 * @param units of HOT that the floor has (the others have stock)
 */
export async function startArm(
  kind: Kind,
  databaseUrl: string,
  units: number,
  options: ArmOptions,
): Promise<Running> {
  const { say } = options;
  const errors = await prepare(say);
  if (errors) throw new Error(errors);
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const key = newKey();
  if (kind !== 'floor') await storeKey(databaseUrl, key);
  const ports = await pickPorts({ api: 0, counts: 0, temporal: 0 });
  const children: Watched[] = [];
  const stop = async () => {
    for (const child of children.reverse()) await child.stop();
  };
  const own = (child: Watched) => (children.push(child), child.pid);
  try {
    const environment: Record<string, string | undefined> = {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      ...Object.fromEntries(passedOn.map((name) => [name, process.env[name]])),
      DATABASE_URL: databaseUrl,
      TAHAN_WEBHOOK_SECRETS: secret,
      TAHAN_RATE_PER_KEY: 'off',
      PORT: String(ports.api.number),
      BENCH_COUNTS_PORT: String(ports.counts.number),
      BENCH_UNITS: String(units),
    };
    const node = async (name: 'api' | 'worker', file: string) => {
      const child = await startWatched({
        command: process.execPath,
        args: [...(file.endsWith('.ts') ? ['--import', 'tsx'] : []), join(root, file)],
        cwd: root,
        env: environment,
        logFile: freshLog(kind, name),
        graceMs: 15_000,
      });
      own(child);
      await whenReady(`${name} of ${kind}`, child, () =>
        Promise.resolve(readFileSync(child.logFile, 'utf8').includes('"ready":true')),
      );
      return child.pid;
    };

    const pids: Record<string, number> = {};
    if (kind !== 'floor') pids['postgres'] = await postgresPid();
    let temporal: Running['temporal'];
    if (kind !== 'no engine') {
      const bundle = await workflowBundle(say);
      let address = options.temporalAddress;
      if (address === undefined) {
        const folder = mkdtempSync(join(tmpdir(), 'tahan-bench-temporal-'));
        const server = await startTemporal({
          binary: await findTemporal({ say }),
          port: ports.temporal.number,
          dataFile: join(folder, 'temporal.db'),
          temporary: folder,
          logFile: freshLog(kind, 'temporal'),
        });
        pids['temporal'] = own(server);
        address = server.address;
      }
      // On a server that others use too, task queues of its own.
      const prefix = `bench-${randomBytes(4).toString('hex')}-`;
      temporal = { address, prefix };
      Object.assign(environment, {
        TEMPORAL_ADDRESS: address,
        TEMPORAL_NAMESPACE: 'default',
        TAHAN_TASK_QUEUE_PREFIX: prefix,
        TAHAN_WORKFLOW_BUNDLE: bundle,
      });
      pids['worker'] = await node('worker', files[kind].worker);
    }
    pids['api'] = await node('api', files[kind].api);
    const counts = async () =>
      (await (await fetch(`http://127.0.0.1:${ports.counts.number}`)).json()) as FloorCounts;
    return {
      ...{ kind, port: ports.api.number, key, secret, pids, counts, stop },
      ...(temporal && { temporal }),
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function storeKey(url: string, key: string): Promise<void> {
  const db = openDatabase({ url });
  try {
    await addKey(db, 'shop', 'bench', key);
  } finally {
    await db.close();
  }
}
