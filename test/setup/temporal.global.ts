import type { TestProject } from 'vitest/node';
import { endServers, temporal } from './servers.js';

export async function setup(project: TestProject): Promise<void> {
  const { address } = await temporal();
  project.provide('temporalAddress', address);
}

export const teardown = endServers;

declare module 'vitest' {
  interface ProvidedContext {
    /** host:port of the development server, namespace `default`; keep apart by task queue prefix. */
    temporalAddress: string;
  }
}
