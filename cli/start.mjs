/**
 * `npm start` on a bare clone. This file and what it imports at first use nothing but Node: it installs
 * and builds what is missing, and then hands over to the launcher (launch.ts), in the same process.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { holderOf, takeLock } from './lock.mjs';
import { nodeTooOld, prepare, root } from './prepare.mjs';
import { Report } from './report.mjs';

const usage = `npm start -- [options]
  --once      show the demonstration, stop everything, and say whether all was right
  --fresh     use temporary data and any free ports; what is kept stays untouched
  --json      print one JSON line per step
  --no-demo   start without the demonstration
TAHAN_DATA names the folder that data is kept in; .tahan if not set.`;

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
  folder: resolve(process.env.TAHAN_DATA || join(root, '.tahan')),
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
const lock = options.fresh ? undefined : takeLock(join(options.folder, 'launcher.lock'));
if (lock && !lock.held) {
  const holder = `tahan is running on this data already, as process ${lock.pid}`;
  fail('lock', `${holder}: stop it first, or use --fresh.`);
}
if (lock) process.on('exit', lock.release);
if (lock?.tookOver) report.step('lock', 'the last run was killed: took over its lock file');

try {
  if (lock) await lastRunEnded(join(options.folder, 'watchers'));
  const errors = await prepare((step) => report.step('install', step));
  if (errors) fail('build', errors.trimEnd());
  const { launch } = await import(pathToFileURL(join(root, 'dist', 'cli', 'launch.js')).href);
  process.exitCode = await launch(options, report);
} catch (error) {
  fail('start', error.stack ?? String(error));
}
// Nothing is waited for any more: a forgotten timer must not keep a finished start alive.
process.exit();

/** After a kill -9 the servers end by themselves: their ports and files are free when their watchers are gone. */
async function lastRunEnded(watchers) {
  const left = () =>
    existsSync(watchers)
      ? readdirSync(watchers).filter((name) => holderOf(join(watchers, name)))
      : [];
  for (let waited = 0; left().length > 0; waited += 100) {
    if (waited === 0) report.step('lock', `waiting for the last run to end (${left().join(', ')})`);
    if (waited > 30_000) throw new Error(`The last run does not end: ${left().join(', ')}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function fail(step, text) {
  report.fail(step, text);
  process.exit(1);
}
