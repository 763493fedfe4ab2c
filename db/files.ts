import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the SQL files: beside this file, or, when this runs from dist/, beside its source. */
function sqlFolder(name: string): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const candidate = join(folder, 'db', name);
    if (existsSync(join(folder, 'package.json')) && existsSync(candidate)) return candidate;
    const parent = dirname(folder);
    if (parent === folder) throw new Error(`the folder db/${name} is missing`);
    folder = parent;
  }
}

export const migrationsFolder = (): string => sqlFolder('migrations');

/** Names of the numbered migrations, without ending, in order. */
export function migrationNames(): string[] {
  return sqlFiles(migrationsFolder()).map((file) => file.replace(/\.sql$/, ''));
}

/** The SQL functions in the order they are made, and a hash of all of them. */
export function functionFiles(): { hash: string; files: { name: string; text: string }[] } {
  const folder = sqlFolder('functions');
  const files = sqlFiles(folder).map((name) => ({
    name,
    text: readFileSync(join(folder, name), 'utf8'),
  }));
  const hash = createHash('sha256');
  for (const { name, text } of files) hash.update(`${name}\0${text}\0`);
  return { hash: hash.digest('hex'), files };
}

function sqlFiles(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort();
}
