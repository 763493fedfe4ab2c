import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { root } from './root.js';
import { secretsIn, type Secrets } from './secrets.js';

/** Where the running system is, for commands in another terminal. */
export interface Running {
  apiUrl: string;
  sandboxUrl: string;
}

/** As the launcher finds it (start.mjs). */
export function dataFolder(env: NodeJS.ProcessEnv = process.env): string {
  return resolve(env['TAHAN_DATA'] || join(root, '.tahan'));
}

export function announce(folder: string, running: Running): void {
  const draft = `${fileIn(folder)}.${process.pid}`;
  writeFileSync(draft, `${JSON.stringify(running, null, 2)}\n`);
  renameSync(draft, fileIn(folder)); // whole, or not at all
}

export function withdraw(folder: string): void {
  rmSync(fileIn(folder), { force: true });
}

/** The addresses and keys of what `npm start` runs on this data; undefined where nothing answers. */
export async function findRunning(
  folder: string,
): Promise<(Running & { secrets: Secrets }) | undefined> {
  let running: Running;
  try {
    running = JSON.parse(readFileSync(fileIn(folder), 'utf8')) as Running;
  } catch {
    return undefined;
  }
  // A launcher that was killed leaves its file behind.
  const alive = await Promise.all([running.apiUrl, running.sandboxUrl].map(lives));
  return alive.every(Boolean) ? { ...running, secrets: secretsIn(folder) } : undefined;
}

export async function lives(url: string): Promise<boolean> {
  return fetch(`${url}/livez`, { signal: AbortSignal.timeout(5_000) }).then(
    (answer) => answer.ok,
    () => false,
  );
}

function fileIn(folder: string): string {
  return join(folder, 'running.json');
}
