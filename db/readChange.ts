import type { Database } from './database.js';
import type { Line } from './values.js';

/**
 * Whether this hold has carried out a release under this request id: the same one, or another
 * request. For a repeat that comes when the hold's workflow has ended. `lines` must be merged and
 * sorted by SKU, as the database keeps them.
 */
export async function readRelease(
  db: Database,
  holdId: string,
  requestId: string,
  { lines, reason }: { lines: Line[]; reason: string },
  withinMs?: number,
): Promise<'NONE' | 'SAME' | 'OTHER'> {
  const [row] = await db.reads.rows<{ same: boolean }>(
    {
      name: 'read_release',
      text: `
        select r.request = $3::jsonb as same from tahan.requests r
        where r.scope = 'hold ' || $1::uuid and r.request_id = $2::text`,
      values: [holdId, requestId, JSON.stringify({ release: lines, reason })],
    },
    { withinMs },
  );
  return row === undefined ? 'NONE' : row.same ? 'SAME' : 'OTHER';
}
