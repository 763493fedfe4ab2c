/**
 * `npm run schema`: writes db/schema.sql out of a fresh database; with --check it only compares, and
 * fails when a migration or function has changed what the file shows.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '../db/migrate.js';
import { dumpSchema } from '../db/schemaDump.js';
import { root } from './root.js';
import { postgresAccount } from './servers/account.js';
import { pickPorts } from './servers/ports.js';
import { startPostgres } from './servers/postgres.js';
import { embeddedPostgres } from './servers/postgresBinaries.js';

const say = () => undefined;
const account = postgresAccount(say);
const { postgres: port } = await pickPorts({ postgres: 0 });
const server = await startPostgres({
  binaries: embeddedPostgres(account, say),
  account,
  home: mkdtempSync(join(tmpdir(), 'tahan-schema-')),
  port: port.number,
  durable: false,
  temporary: true,
  say,
});
const file = join(root, 'db', 'schema.sql');
try {
  await migrate(server.url('postgres'));
  const text = await dumpSchema(server.url('postgres'));
  if (!process.argv.includes('--check')) {
    writeFileSync(file, text);
    console.log(`wrote db/schema.sql (${text.split('\n').length} lines)`);
  } else if (readFileSync(file, 'utf8') === text) {
    console.log('db/schema.sql is what the migrations make');
  } else {
    console.error(
      'db/schema.sql is not what the migrations make: run "npm run schema" and commit it',
    );
    process.exitCode = 1;
  }
} finally {
  await server.stop();
}
