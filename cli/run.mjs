/**
 * Runs one entry of dist, after installing and building what is stale: `npm run start:api` and its
 * like. In this same process, so that signals and exit codes are the entry's own.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { nodeTooOld, prepare, root } from './prepare.mjs';

const [entry, ...rest] = process.argv.slice(2);
const tooOld = nodeTooOld();
if (tooOld) stop(tooOld);
// Said on stderr: what the entry prints may be read by a program.
const errors = await prepare((step) => console.error(step)).catch((error) => stop(error.message));
if (errors) stop(errors.trimEnd());

const file = join(root, 'dist', entry);
process.argv = [process.argv[0], file, ...rest];
await import(pathToFileURL(file).href);

function stop(sentence) {
  console.error(sentence);
  process.exit(1);
}
