import { inject } from 'vitest';
import { spawnProcess } from '../workflows/process.js';
import type { OwnProcess, Role } from '../workflows/process.js';
import { cable } from './cable.js';
import type { Cable } from './cable.js';
import { openService } from './service.js';
import type { Service, ServiceOptions } from './service.js';

/** The service as it is deployed: API and worker are processes, and each of their ways to a server is a cable. */
export interface System extends Service {
  to: Record<'postgres' | 'temporal', Record<Role, Cable>>;
  /** The present ones. */
  processes: Record<Role, OwnProcess>;
  /** Starts one, in place of the present one. */
  startApi(): Promise<void>;
  startWorker(): Promise<void>;
}

export async function openSystem(
  servers?: ServiceOptions['servers'],
  env: Record<string, string> = {},
): Promise<System> {
  const service = await openService({ workers: false, ...(servers && { servers }) });
  const postgres = new URL(service.shop.url);
  const [temporalHost, temporalPort] = (
    servers?.temporalAddress ?? inject('temporalAddress')
  ).split(':') as [string, string];
  const to = {
    postgres: await pair({ host: postgres.hostname, port: Number(postgres.port) }),
    temporal: await pair({ host: temporalHost, port: Number(temporalPort) }),
  };
  const start = (role: Role) => {
    const url = new URL(postgres);
    url.host = to.postgres[role].address;
    return spawnProcess(role, {
      DATABASE_URL: url.href,
      TEMPORAL_ADDRESS: to.temporal[role].address,
      TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
      TAHAN_WEBHOOK_SECRETS: service.secret,
      STRIPE_WEBHOOK_SECRETS: service.stripeSecret,
      // Buyers of tests may be in a hurry; what is limited has tests of its own.
      TAHAN_RATE_PER_BUYER: 'off',
      ...env,
    });
  };
  const processes = { api: start('api'), worker: start('worker') };
  const urlOf = async () => String((await processes.api.ready())['url']);
  let url = await urlOf();
  await processes.worker.ready();
  const closeService = service.close.bind(service);
  const system: System = Object.assign(service, {
    to,
    processes,
    url: () => url,
    async startApi() {
      processes.api = start('api');
      url = await urlOf();
    },
    async startWorker() {
      processes.worker = start('worker');
      await processes.worker.ready();
    },
    async close() {
      for (const { child, exit } of Object.values(processes)) {
        child.kill('SIGKILL');
        await exit;
      }
      for (const way of Object.values(to)) await Promise.all([way.api.close(), way.worker.close()]);
      await closeService();
    },
  });
  // A worker's first claim loads the workflows, on a busy machine for longer than a claim may take.
  await system.hold({ [await system.product([1])]: 1 });
  return system;
}

async function pair(target: { host: string; port: number }): Promise<Record<Role, Cable>> {
  return { api: await cable(target), worker: await cable(target) };
}
