import type { TestProject } from 'vitest/node';
import { bundle } from './servers.js';

export async function setup(project: TestProject): Promise<void> {
  project.provide('bundlePath', await bundle());
}

declare module 'vitest' {
  interface ProvidedContext {
    /** The workflow bundle, built from dist; dist itself is up to date too. */
    bundlePath: string;
  }
}
