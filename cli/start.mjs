/**
 * `npm start` on a bare clone. This file and what it imports at first use nothing but Node: it installs
 * and builds what is missing, and then hands over to the launcher (launch.ts), in the same process.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { takeLock } from './lock.mjs';
import { nodeTooOld, prepare, root } from './prepare.mjs';
import { Report } from './report.mjs';

const usage = `npm start -- [options]
  --once      show the demonstration, stop everything, and say whether all was right
  --fresh     use temporary data and any free ports; what is kept stays untouched
  --json      print one JSON line per step
  --no-demo   start without the demonstration`;

const flags = process.argv.slice(2);
const known = ['--once', '--fresh', '--json', '--no-demo'];
if (flags.includes('--help')) {
  console.log(usage);
  process.exit(0);
}
const unknown = flags.find((flag) => !known.includes(flag));
if (unknown) {
  console.error(`There is no option "${unknown}".\n${usage}`);
  process.exit(2);
}

const options = {
  once: flags.includes('--once'),
  fresh: flags.includes('--fresh'),
  demonstrate: !flags.includes('--no-demo'),
};
const report = new Report(flags.includes('--json'));

report.prose('tahan');
const tooOld = nodeTooOld();
if (tooOld) fail('node', tooOld);
report.step('node', process.versions.node, { version: process.versions.node });

// One launcher per data folder: two would start two servers on the same files.
const lockFile = join(root, '.tahan', 'launcher.lock');
const lock = options.fresh ? undefined : takeLock(lockFile);
if (lock && !lock.held) {
  fail(
    'lock',
    `tahan is running in this clone already, as process ${lock.pid}: stop it first, or use --fresh.`,
  );
}
if (lock?.tookOver) report.step('lock', 'the last run was killed: took over its lock file');
if (lock) process.on('exit', lock.release);

try {
  const errors = await prepare((step) => report.step('install', step));
  if (errors) fail('build', errors.trimEnd());
  const { launch } = await import(pathToFileURL(join(root, 'dist', 'cli', 'launch.js')).href);
  process.exitCode = await launch(options, report);
} catch (error) {
  fail('start', error.stack ?? String(error));
}
// Nothing is waited for any more: a forgotten timer must not keep a finished start alive.
process.exit();

function fail(step, text) {
  report.fail(step, text);
  process.exit(1);
}
