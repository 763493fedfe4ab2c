import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The project's folder, whether this file runs from the sources (tests) or from dist. */
export const root = nearest(dirname(fileURLToPath(import.meta.url)));

function nearest(folder: string): string {
  if (existsSync(join(folder, 'package.json'))) return folder;
  const above = dirname(folder);
  if (above === folder) throw new Error('The project has no package.json: is the clone complete?');
  return nearest(above);
}
