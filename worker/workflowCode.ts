import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode } from '@temporalio/worker';
import type { Logger, WorkflowBundleOption } from '@temporalio/worker';

/**
 * The workflows for the worker's sandbox: a bundle made before, or bundled now. Only from what tsc
 * wrote: the bundler does not notice an import that does not exist, and `instanceof undefined` would
 * wedge every hold.
 */
export async function workflowCode(
  bundlePath: string | undefined,
  logger: Logger,
): Promise<WorkflowBundleOption> {
  if (bundlePath !== undefined) {
    if (existsSync(bundlePath)) return { codePath: bundlePath };
    logger.warn('TAHAN_WORKFLOW_BUNDLE names no file: the workflows are bundled now');
  }
  const file = (name: string) => fileURLToPath(new URL(`../workflows/${name}`, import.meta.url));
  return bundleWorkflowCode({
    workflowsPath: file('index.js'),
    payloadConverterPath: file('payloadConverter.js'),
    logger,
  });
}
