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

export default defineConfig({
  test: {
    pool: 'forks', // threads crash the SDK's native module
    maxWorkers: 2,
    setupFiles: ['test/setup/orphan.ts'],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: [
      project('project', ['test/project/**/*.test.ts'], [needs.build]),
      project('database', ['test/db/**/*.test.ts'], [needs.postgres]),
      project(
        'workflow',
        ['test/workflows/**/*.test.ts'],
        [needs.bundle, needs.postgres, needs.temporal],
      ),
      project(
        'api',
        ['test/api/**/*.test.ts', 'test/system/**/*.test.ts'],
        [needs.bundle, needs.postgres, needs.temporal],
      ),
    ],
  },
});
