import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Command } from 'commander';
import { routes } from '../api/app.js';
import { errorsPage } from '../api/errors.js';
import { openApiDocument } from '../api/openapi.js';
import { root } from './root.js';

/** `npm run openapi`: writes what is made from the API's routes and codes; `--check` compares. */
const { check } = new Command('openapi')
  .description('write api/openapi.json and docs/errors.md')
  .option('--check', 'change nothing; fail if they are not up to date')
  .parse()
  .opts<{ check?: true }>();

const files = {
  'api/openapi.json': `${JSON.stringify(openApiDocument(routes), null, 2)}\n`,
  'docs/errors.md': errorsPage(),
};

for (const [name, text] of Object.entries(files)) {
  const path = join(root, name);
  if (!check) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    process.stdout.write(`${name} is written\n`);
  } else if (text !== present(path)) {
    process.stderr.write(`${name} is not up to date: npm run openapi\n`);
    process.exitCode = 1;
  }
}

function present(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
