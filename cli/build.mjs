/**
 * Builds dist: tsc, and beside its output the files that tsc leaves behind (SQL, pages). Skipped when
 * nothing changed since the last build. Run by `npm run build`, `npm start` and the tests alike, one at
 * a time per clone.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { waitForLock } from './lock.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, 'dist');
const stamp = join(dist, '.built');

/**
 * @param {(step: string) => void} say
 * @returns {Promise<string>} the type errors of a build that left usable output, else ''
 */
export async function build(say) {
  const lock = await waitForLock(join(root, '.tahan', 'build.lock'), (pid) =>
    say(`waiting for the build of process ${pid}`),
  );
  try {
    const before = fingerprint();
    if (existsSync(stamp) && readFileSync(stamp, 'utf8') === before) return '';
    const started = performance.now();
    const errors = compile();
    copyOthers();
    removeOrphans();
    if (!errors) writeFileSync(stamp, before);
    say(`built dist in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    return errors;
  } finally {
    lock.release();
  }
}

function compile() {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [tsc, '-p', 'tsconfig.build.json', '--pretty', 'false'],
    { cwd: root, encoding: 'utf8' },
  );
  return status === 0 ? '' : stdout + stderr || `tsc ended with ${status}`;
}

/** Paths, sizes and times of all that a build reads: cheap, and true unless someone forges times. */
function fingerprint() {
  const hash = createHash('sha256');
  const inputs = ['tsconfig.json', 'tsconfig.build.json', 'package-lock.json'].concat(sources());
  for (const path of inputs.sort()) {
    const file = join(root, path);
    if (!existsSync(file)) continue;
    const { size, mtimeMs } = statSync(file);
    hash.update(`${path} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

function folders() {
  const config = JSON.parse(readFileSync(join(root, 'tsconfig.build.json'), 'utf8'));
  return config.include.filter((folder) => existsSync(join(root, folder)));
}

function sources() {
  return folders()
    .flatMap((folder) => filesIn(join(root, folder)))
    .map((file) => relative(root, file));
}

function copyOthers() {
  for (const path of sources().filter((path) => !/\.m?ts$/.test(path))) {
    mkdirSync(dirname(join(dist, path)), { recursive: true });
    cpSync(join(root, path), join(dist, path), { preserveTimestamps: true });
  }
}

/** tsc leaves the output of a deleted source behind, and a workflow that is gone could still start. */
function removeOrphans() {
  for (const folder of folders()
    .map((folder) => join(dist, folder))
    .filter(existsSync)) {
    for (const file of filesIn(folder)) {
      const source = join(root, relative(dist, file)).replace(/\.map$/, '');
      if (!existsSync(source) && !existsSync(source.replace(/\.js$/, '.ts'))) rmSync(file);
    }
  }
}

function filesIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesIn(join(folder, entry.name)) : [join(folder, entry.name)],
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const errors = await build((step) => console.log(step));
  if (errors) {
    console.error(errors.trimEnd());
    process.exit(1);
  }
}
