/**
 * `npm test` on a bare clone: installs and builds what is missing, then runs vitest with the given
 * arguments, in this same process. The servers are started by test/setup.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { nodeTooOld, prepare, root } from './prepare.mjs';

const tooOld = nodeTooOld();
if (tooOld) {
  console.error(tooOld);
  process.exit(1);
}
const errors = await prepare((step) => console.error(`[setup] ${step}`));
if (errors) console.error(errors.trimEnd());

const args = process.argv.slice(2);
// Without a word of its own vitest would watch for changes.
const command = ['run', 'watch', 'related', 'bench', 'list'].includes(args[0]) ? [] : ['run'];
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
process.argv = [process.argv[0], vitest, ...command, ...args];
await import(pathToFileURL(vitest).href);
