import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** Each project starts only the servers that it needs; all of them share one of each (test/setup). */
const needs = {
  postgres: 'test/setup/postgres.global.ts',
  temporal: 'test/setup/temporal.global.ts',
  build: 'test/setup/build.global.ts',
  bundle: 'test/setup/bundle.global.ts',
};

function project(name: string, include: string[], globalSetup: string[]) {
  return { extends: true as const, test: { name, include, globalSetup } };
}

const servers = [needs.bundle, needs.postgres, needs.temporal];

/** These have a short form and a full one: they, or what they are made of, ask test/setup/length.ts. */
const inBothLengths = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .map((name) => join('test', name))
  .filter((name) => name.endsWith('.test.ts'))
  .filter((name) =>
    /\/length\.js'|isThorough|describeNewest|bothForms/.test(readFileSync(name, 'utf8')),
  );

/** Minutes long, in their full length: `npm run test:chaos`. Each has a short form in the others. */
const chaos = [project('chaos', ['test/chaos/**/*.test.ts', ...inBothLengths], servers)];

const usual = [
  project('project', ['test/project/**/*.test.ts'], [needs.build]),
  project('database', ['test/db/**/*.test.ts'], [needs.postgres]),
  project('workflow', ['test/workflows/**/*.test.ts'], servers),
  project('api', ['test/api/**/*.test.ts', 'test/system/**/*.test.ts'], servers),
];

export default defineConfig({
  test: {
    pool: 'forks', // threads crash the SDK's native module
    // A process serves many files: a new one for each took 1 to 2 s of CPU, a quarter of the whole suite.
    isolate: false,
    maxWorkers: 2,
    setupFiles: ['test/setup/orphan.ts'],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: process.env['TAHAN_CHAOS'] ? chaos : usual,
  },
});
