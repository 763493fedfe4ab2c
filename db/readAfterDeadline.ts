import type { Database } from './database.js';
import type { Hold } from './readHold.js';

export type AfterDeadline =
  { outcome: 'FOUND'; hold: Hold } | { outcome: 'FREE' } | { outcome: 'BUSY' };

/**
 * What became of a claim whose deadline has passed: its row; or nothing with the claim's key free,
 * which means that nothing is held and nothing will be; or the key is busy: still being decided.
 */
export function readAfterDeadline(
  db: Database,
  holdId: string,
  claimDeadline: string,
  withinMs?: number,
): Promise<AfterDeadline> {
  return db.reads.answer<AfterDeadline>(
    {
      name: 'after_deadline',
      text: `select tahan.after_deadline($1::uuid, $2::timestamptz) as answer`,
      values: [holdId, claimDeadline],
    },
    { withinMs },
  );
}
