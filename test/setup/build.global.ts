import { builtDist } from './servers.js';

/** dist is up to date before the first test runs; what fails in it, fails there. */
export async function setup(): Promise<void> {
  await builtDist();
}
