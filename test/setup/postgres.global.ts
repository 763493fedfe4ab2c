import type { TestProject } from 'vitest/node';
import { allPostgres, endServers } from './servers.js';

export async function setup(project: TestProject): Promise<void> {
  const servers = await allPostgres();
  project.provide(
    'postgres',
    servers.map(({ major, url }) => ({ version: major, url: url('postgres') })),
  );
}

export const teardown = endServers;

declare module 'vitest' {
  interface ProvidedContext {
    /** One server per present version, the newest first: the owner's address of its `postgres` database. */
    postgres: { version: number; url: string }[];
  }
}
