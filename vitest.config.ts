import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer } from 'vitest/node';
import type { TestSpecification } from 'vitest/node';

/** Each project starts only the servers that it needs; all of them share one of each (test/setup). */
const needs = {
  postgres: 'test/setup/postgres.global.ts',
  temporal: 'test/setup/temporal.global.ts',
  build: 'test/setup/build.global.ts',
  bundle: 'test/setup/bundle.global.ts',
};

function project(name: string, include: string[], globalSetup: string[], exclude: string[] = []) {
  return { extends: true as const, test: { name, include, exclude, globalSetup } };
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

/**
 * Most of the time these wait, for deadlines, outages and timers: a second takes 0.2 to 0.6 s of CPU, and
 * 0.7 to 1.3 s in the other long files. So there are three at once, after the others; the longest first,
 * since none should be left alone at the end.
 */
const waiting = [
  'test/workflows/workerProcess.test.ts',
  'test/api/processes.test.ts',
  'test/api/main.test.ts',
  'test/api/workerAway.test.ts',
  'test/api/outages.test.ts',
  'test/workflows/taskFailure.test.ts',
  'test/api/killedApi.test.ts',
  'test/workflows/settle.test.ts',
  'test/workflows/hold.test.ts',
  'test/workflows/send.test.ts',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification) =>
      waiting.findIndex((name) => moduleId.endsWith(name));
    const sorted = await super.sort(files);
    // They are one project, so no other file stands between them.
    return sorted.sort((a, b) => (place(a) < 0 || place(b) < 0 ? 0 : place(a) - place(b)));
  }
}

const usual = [
  {
    extends: true as const,
    test: {
      name: 'waiting',
      include: waiting,
      globalSetup: servers,
      maxWorkers: 3,
      sequence: { groupOrder: 1 },
    },
  },
  project('project', ['test/project/**/*.test.ts'], [needs.build]),
  project('database', ['test/db/**/*.test.ts'], [needs.postgres]),
  project('workflow', ['test/workflows/**/*.test.ts'], servers, waiting),
  project('api', ['test/api/**/*.test.ts', 'test/system/**/*.test.ts'], servers, waiting),
];

export default defineConfig({
  test: {
    pool: 'forks', // threads crash the SDK's native module
    // A process serves many files: a new one for each took 1 to 2 s of CPU, a quarter of the whole suite.
    isolate: false,
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    setupFiles: ['test/setup/orphan.ts'],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: process.env['TAHAN_CHAOS'] ? chaos : usual,
  },
});
