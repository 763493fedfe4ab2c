import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { root } from './root.js';

const workflows = join(root, 'dist', 'workflows');

/**
 * The workflows as one file for the worker's sandbox. Building it takes 8 s here, so it is kept, named
 * by what it was made of. It is made of tsc's output only: neither tsx nor the bundler notices an
 * import that does not exist, and `instanceof undefined` would wedge every hold.
 */
export async function workflowBundle(say: (step: string) => void): Promise<string> {
  const cache = join(root, '.tahan', 'cache');
  const file = join(cache, `workflows-${contentKey()}.js`);
  if (existsSync(file)) return file;
  const started = performance.now();
  const { bundleWorkflowCode } = await import('@temporalio/worker');
  const { code } = await bundleWorkflowCode({
    workflowsPath: join(workflows, 'index.js'),
    payloadConverterPath: join(workflows, 'payloadConverter.js'),
    logger: silent,
  });
  mkdirSync(cache, { recursive: true });
  const unfinished = `${file}.${process.pid}`;
  writeFileSync(unfinished, code);
  renameSync(unfinished, file);
  removeOld(cache);
  say(`bundled the workflows in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return file;
}

/** False while the workflows are not built. */
export function hasWorkflows(): boolean {
  return ['index.js', 'payloadConverter.js'].every((name) => existsSync(join(workflows, name)));
}

/** Workflow code imports only itself and @temporalio, whose versions stand in the lock. */
function contentKey(): string {
  const hash = createHash('sha256').update(readFileSync(join(root, 'package-lock.json')));
  const files = readdirSync(workflows, { recursive: true, encoding: 'utf8' });
  for (const name of files.filter((name) => name.endsWith('.js')).sort()) {
    hash.update(name).update(readFileSync(join(workflows, name)));
  }
  return hash.digest('hex').slice(0, 16);
}

/** A bundle of last week's code serves nobody, but one of today may serve another run. */
function removeOld(cache: string): void {
  const weekAgo = Date.now() - 7 * 24 * 3_600_000;
  for (const name of readdirSync(cache).filter((name) => name.startsWith('workflows-'))) {
    if (statSync(join(cache, name)).mtimeMs < weekAgo) rmSync(join(cache, name), { force: true });
  }
}

const silent = {
  log: () => undefined,
  trace: () => undefined,
  debug: () => undefined,
  info: () => undefined,
  warn: (message: string) => process.stderr.write(`${message}\n`),
  error: (message: string) => process.stderr.write(`${message}\n`),
};
