import { migrate } from '../db/migrate.js';

/** `npm run migrate`: brings the database of DATABASE_URL, as its owner, to this program's schema. */
const url = process.env['DATABASE_URL'];
if (!url) {
  console.error('DATABASE_URL is not set: give the address of the database, as its owner');
  process.exit(2);
}
try {
  const { applied, functions } = await migrate(url);
  console.log(applied.length > 0 ? `applied ${applied.join(', ')}` : 'the schema was up to date');
  console.log(functions ? 'replaced the functions' : 'the functions were up to date');
} catch (error) {
  const { message, hint } = error as Error & { hint?: string };
  console.error(`not migrated: ${message}${hint ? `\n${hint}` : ''}`);
  process.exit(1);
}
