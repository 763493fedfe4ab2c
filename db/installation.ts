import type { Database } from './database.js';

/** The salt of this installation's hold ids: without it, nobody can guess an id from buyer and key. */
export function readSalt(db: Database, withinMs?: number): Promise<string> {
  return db.reads.answer<string>(
    { name: 'salt', text: `select i.salt as answer from tahan.installation i`, values: [] },
    { withinMs },
  );
}
