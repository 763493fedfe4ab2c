import { Command, InvalidArgumentError } from 'commander';
import { openDatabase } from '../db/database.js';
import type { Database } from '../db/database.js';
import { addKey, listKeys, newKey, revokeKey } from '../db/keys.js';
import type { Role } from '../db/keys.js';

/** `npm run keys`: makes, lists and revokes API keys. A key is shown once and stored as a hash. */
const program = new Command('keys').description('API keys of tahan');

program
  .command('create')
  .argument('<role>', 'shop (checks out) or operator (may do all)', role)
  .argument('<name>', 'who it is for; kept in the ledger as who did it', name)
  .description('make a key and print it, this once')
  .action((role: Role, name: string) =>
    withDatabase(async (db) => {
      const key = newKey();
      const { id } = await addKey(db, role, name, key);
      print(`${key}\n\nThis is shown once. Its id, to revoke it, is ${id}.`);
    }),
  );

program
  .command('list')
  .description('show the keys that were made, without the keys themselves')
  .action(() =>
    withDatabase(async (db) => {
      const keys = await listKeys(db);
      if (keys.length === 0) print('No keys yet: npm run keys -- create shop <name>');
      for (const { id, role, name, createdAt, revokedAt } of keys) {
        const state = revokedAt === null ? 'valid' : `revoked ${revokedAt}`;
        print([id, role.padEnd(8), createdAt, state, name].join('  '));
      }
    }),
  );

program
  .command('revoke')
  .argument('<id>', 'the id that create and list show', id)
  .description('make a key invalid; running API processes refuse it within 2 seconds')
  .action((id: string) =>
    withDatabase(async (db) => {
      if (await revokeKey(db, id)) return print(`Revoked ${id}.`);
      process.exitCode = 1;
      process.stderr.write(`No valid key has the id ${id}.\n`);
    }),
  );

function role(text: string): Role {
  if (text === 'shop' || text === 'operator') return text;
  throw new InvalidArgumentError('It must be shop or operator.');
}

function name(text: string): string {
  if (/^[\x20-\x7e]{1,100}$/.test(text) && text.trim() !== '') return text;
  throw new InvalidArgumentError('It must be 1 to 100 printable ASCII characters.');
}

function id(text: string): string {
  if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)) return text;
  throw new InvalidArgumentError('It must be the id of a key.');
}

async function withDatabase(work: (db: Database) => Promise<void>): Promise<void> {
  const own = process.env['TAHAN_APP_DATABASE_URL'];
  const url = own ?? process.env['DATABASE_URL'];
  if (url === undefined || url === '') {
    process.stderr.write(
      'Set DATABASE_URL, or TAHAN_APP_DATABASE_URL, to the address of Postgres.\n',
    );
    process.exitCode = 2;
    return;
  }
  const db = openDatabase({ url, takeAppRole: own === undefined, applicationName: 'tahan keys' });
  try {
    await work(db);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  } finally {
    await db.close();
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

await program.parseAsync();
