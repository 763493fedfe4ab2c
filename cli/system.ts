import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDatabase } from '../db/database.js';
import { addKey } from '../db/keys.js';
import { migrate } from '../db/migrate.js';
import { connect, taskQueuePrefix, taskQueues } from '../workflows/contract.js';
import {
  database,
  givenDatabase,
  givenTemporal,
  shown,
  temporal,
  type Addresses,
  type Site,
} from './backing.js';
import { workflowBundle } from './bundle.js';
import type { Report } from './report.mjs';
import { root } from './root.js';
import { announce, lives, withdraw } from './running.js';
import { secretsIn, type Secrets } from './secrets.js';
import { pickPorts, usualPorts, type Port } from './servers/ports.js';
import { startWatched, whenReady, type Watched } from './servers/watch.js';

type Role = 'api' | 'worker' | 'sandbox' | 'temporal' | 'postgres';

/** Nobody loses what it still needs: HTTP ends first, then the activities, then what they talk to. */
const stopOrder: Role[] = ['api', 'worker', 'sandbox', 'temporal', 'postgres'];

export interface SystemOptions {
  /** Temporary data and any free ports. */
  fresh: boolean;
  /** Where data is kept otherwise. */
  folder: string;
}

/** All processes of one running tahan: the servers unless given, the worker and the API. */
export class System {
  /** Fulfilled with a sentence when a child ended that should not have. */
  readonly broken: Promise<string>;
  readonly folder: string;
  readonly secrets: Secrets;
  apiUrl = '';
  /** The payment provider of the demonstration (cli/sandbox). */
  sandboxUrl = '';
  temporalUi: string | undefined;

  readonly #options: SystemOptions;
  readonly #report: Report;
  readonly #children = new Map<Role, Watched>();
  readonly #pids: number[] = [];
  #environment: NodeJS.ProcessEnv = {};
  #stopping = false;
  #expected = new Set<Watched>();
  #breaks!: (sentence: string) => void;
  #afterwards: () => Promise<void> = () => Promise.resolve();

  constructor(options: SystemOptions, report: Report) {
    this.#options = options;
    this.#report = report;
    this.folder = options.fresh ? mkdtempSync(join(tmpdir(), 'tahan-')) : options.folder;
    if (options.fresh) chmodSync(this.folder, 0o711); // the postgres user passes through
    this.secrets = secretsIn(this.folder);
    this.broken = new Promise((resolve) => (this.#breaks = resolve));
  }

  async start(): Promise<void> {
    const ports = await this.#ports();
    const [addresses, { environment, ui }, bundle] = await all([
      this.#database(ports.postgres.number),
      temporal(this.#site(), ports.temporal.number, ports.temporalUi.number),
      this.#bundle(),
    ]);
    const secrets = [process.env['TAHAN_WEBHOOK_SECRETS'], this.secrets.webhookSecret];
    this.temporalUi = ui;
    this.#environment = {
      ...process.env,
      ...environment,
      ...addresses,
      TAHAN_WORKFLOW_BUNDLE: bundle,
      TAHAN_DEMO: '1',
      TAHAN_WEBHOOK_SECRETS: secrets.filter((secret) => secret).join(' '),
      TAHAN_EXIT_WITH_PARENT: '', // the watchers do that, and hold no stdin
      HOST: '127.0.0.1',
      PORT: String(ports.api.number),
    };
    this.apiUrl = `http://127.0.0.1:${ports.api.number}`;
    this.sandboxUrl = `http://127.0.0.1:${ports.sandbox.number}`;
    await all([this.startWorker(), this.#startApi(), this.#startSandbox(ports.sandbox.number)]);
    if (!this.#stopping)
      announce(this.folder, { apiUrl: this.apiUrl, sandboxUrl: this.sandboxUrl });
  }

  /** Ends what was started, in order, and tells how many processes are left: 0. */
  async stop(): Promise<{ stopped: number; left: number }> {
    this.#stopping = true;
    withdraw(this.folder);
    for (const role of stopOrder) await this.#children.get(role)?.stop();
    await this.#afterwards();
    if (this.#options.fresh) rmSync(this.folder, { recursive: true, force: true });
    return { stopped: this.#children.size, left: this.#pids.filter(isAlive).length };
  }

  async startWorker(): Promise<void> {
    const worker = await this.#startNode('worker', {
      TAHAN_REFUND_URL: this.sandboxUrl,
      TAHAN_REFUND_SECRET: this.secrets.refundSecret,
    });
    this.#own('worker', worker);
    await whenReady('The worker', worker, () => this.#workerPolls(worker));
    this.#report.step('worker', `ready, process ${worker.pid}`, { pid: worker.pid });
  }

  /** kill -9, as an out-of-memory killer or a dying machine would do it. Answers with its pid. */
  async killWorker(): Promise<number> {
    const worker = this.#children.get('worker')!;
    this.#expected.add(worker);
    process.kill(worker.pid, 'SIGKILL');
    await worker.ended;
    return worker.pid;
  }

  async #startApi(): Promise<void> {
    const api = await this.#startNode('api');
    this.#own('api', api);
    await whenReady('The API', api, () => isReady(this.apiUrl));
    this.#report.step('api', `ready on ${this.apiUrl}, process ${api.pid}`, {
      url: this.apiUrl,
      pid: api.pid,
    });
  }

  async #startSandbox(port: number): Promise<void> {
    const sandbox = await this.#startNode('sandbox', {
      PORT: String(port),
      // Its own secret and no other: it must not sign as a real provider.
      TAHAN_WEBHOOK_SECRETS: this.secrets.webhookSecret,
      TAHAN_REFUND_SECRET: this.secrets.refundSecret,
      TAHAN_API_URL: this.apiUrl,
      TAHAN_SHOP_KEY: this.secrets.shopKey,
      TAHAN_SANDBOX_FILE: join(this.folder, 'sandbox.jsonl'),
    });
    this.#own('sandbox', sandbox);
    await whenReady('The sandbox', sandbox, () => lives(this.sandboxUrl));
    this.#report.step('sandbox', `ready on ${this.sandboxUrl}, process ${sandbox.pid}`, {
      url: this.sandboxUrl,
      pid: sandbox.pid,
    });
  }

  /** Ready is what Temporal says: this very process asks for tasks. */
  async #workerPolls(worker: Watched): Promise<boolean> {
    const server = connect({
      address: this.#environment['TEMPORAL_ADDRESS'] || undefined,
      namespace: this.#environment['TEMPORAL_NAMESPACE'] || undefined,
    });
    const { namespace, client } = server;
    try {
      const queue = taskQueues(taskQueuePrefix(this.#environment)).holds;
      const { pollers } = await client.connection.withDeadline(Date.now() + 2_000, () =>
        client.workflowService.describeTaskQueue({
          namespace,
          taskQueue: { name: queue },
          taskQueueType: 1, // workflow tasks
        }),
      );
      return pollers.some(({ identity }) => identity?.startsWith(`${worker.pid}@`));
    } catch {
      return false;
    } finally {
      await server.close();
    }
  }

  #startNode(
    role: 'api' | 'worker' | 'sandbox',
    environment: NodeJS.ProcessEnv = {},
  ): Promise<Watched> {
    const folder = role === 'sandbox' ? join('cli', role) : role;
    return startWatched({
      command: process.execPath,
      args: [join(root, 'dist', folder, 'main.js')],
      cwd: root,
      env: { ...this.#environment, ...environment },
      logFile: join(this.folder, 'logs', `${role}.log`),
      graceMs: 15_000,
      lock: this.#lock(role),
    });
  }

  /** By these the next start on the same data sees what is still ending (start.mjs). */
  #lock(role: Role): string | undefined {
    return this.#options.fresh ? undefined : join(this.folder, 'watchers', `${role}.lock`);
  }

  /** The usual port of each server that is ours to start, or any free one. */
  async #ports() {
    const { fresh } = this.#options;
    const usual = { ...usualPorts, api: Number(process.env['PORT'] || usualPorts.api) };
    const ports = await pickPorts(
      fresh ? { api: 0, sandbox: 0, temporalUi: 0, temporal: 0, postgres: 0 } : usual,
    );
    const moved = (Object.entries(ports) as [keyof typeof usual, Port][])
      .filter(([name, port]) => !fresh && !port.usual && this.#isOurs(name))
      .map(([name, port]) => `${name} ${usual[name]} is taken, using ${port.number}`);
    if (moved.length > 0) this.#report.step('ports', moved.join('\n'), ports);
    return ports;
  }

  #isOurs(name: keyof typeof usualPorts): boolean {
    if (name === 'postgres') return givenDatabase() === undefined;
    return name === 'api' || name === 'sandbox' || givenTemporal() === undefined;
  }

  /** Brings the schema up to date and puts the demonstration's keys in. */
  async #database(port: number): Promise<Addresses> {
    const addresses = await database(this.#site(), port);
    const url = addresses.DATABASE_URL;
    const { applied, functions } = await migrate(url);
    const changes = [
      ...(applied.length > 0 ? [`${applied.length} migrations`] : []),
      ...(functions ? ['the SQL functions'] : []),
    ];
    const text = changes.length > 0 ? `applied ${changes.join(' and ')}` : 'schema is up to date';
    this.#report.step('database', text, { applied, functions });
    const db = openDatabase({ url });
    try {
      await addKey(db, 'shop', 'demonstration shop', this.secrets.shopKey);
      await addKey(db, 'operator', 'demonstration operator', this.secrets.operatorKey);
    } finally {
      await db.close();
    }
    return addresses;
  }

  #site(): Site {
    return {
      fresh: this.#options.fresh,
      folder: this.folder,
      report: this.#report,
      lock: (role) => this.#lock(role),
      own: (role, child) => this.#own(role, child),
      afterwards: (work) => (this.#afterwards = work),
    };
  }

  async #bundle(): Promise<string> {
    let built = 'from the cache';
    const file = await workflowBundle((text) => (built = text));
    this.#report.step('workflows', built, { bundle: shown(file) });
    return file;
  }

  #own(role: Role, child: Watched): void {
    this.#children.set(role, child);
    this.#pids.push(child.pid);
    if (this.#stopping) void child.stop();
    void child.ended.then(({ code, signal }) => {
      if (this.#stopping || this.#expected.has(child)) return;
      this.#breaks(
        `The ${role} ended by itself (${signal ?? `code ${code}`}): see ${child.logFile}`,
      );
    });
  }
}

/** Like Promise.all, but waits for all: what is half started when another fails can be stopped. */
async function all<T extends readonly [Promise<unknown>, ...Promise<unknown>[]]>(work: T) {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/** Without Temporal the API is up, but "degraded": not what a start should wait for. */
async function isReady(apiUrl: string): Promise<boolean> {
  try {
    const answer = await fetch(`${apiUrl}/readyz`, { signal: AbortSignal.timeout(3_000) });
    return answer.ok && ((await answer.json()) as { status?: string }).status === 'ready';
  } catch {
    return false;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
