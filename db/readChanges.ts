import type { Database } from './database.js';
import { cursorParts, InvalidCursor, writeCursor } from './readHold.js';

/** A change of a product's settings, or of a bin's; `before` is null where it was made. */
export interface SettingChange {
  id: string;
  /** Null: the product itself. */
  bin: string | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown>;
  actor: string;
  reason: string | null;
  createdAt: string;
}

/** What was changed of a product and its bins, newest first. */
export async function readChanges(
  db: Database,
  { sku, cursor, limit }: { sku: string; cursor?: string; limit: number },
  withinMs?: number,
): Promise<{ items: SettingChange[]; nextCursor: string | null }> {
  const [after] = cursor === undefined ? [null] : cursorParts(cursor, 1);
  if (typeof after === 'string' && !/^\d{1,18}$/.test(after)) throw new InvalidCursor('cursor');
  const rows = await db.reads.rows<{ change: SettingChange }>(
    {
      name: 'read_changes',
      text: `
        select jsonb_build_object(
          'id', c.id::text, 'bin', w.bin, 'before', c.before, 'after', c.after, 'actor', c.actor,
          'reason', c.reason, 'createdAt', tahan.instant(c.created_at)) as change
        from (
          select 'product ' || $1::text as what, null as bin
          union all
          select 'bin ' || b.sku || ' ' || b.code, b.code from tahan.bins b where b.sku = $1::text collate "C") w
        join tahan.setting_changes c on c.what = w.what
        where $2::bigint is null or c.id < $2
        order by c.id desc limit $3::int + 1`,
      values: [sku, after, limit],
    },
    { withinMs },
  );
  const items = rows.slice(0, limit).map((row) => row.change);
  const last = items.at(-1);
  return { items, nextCursor: rows.length > items.length && last ? writeCursor([last.id]) : null };
}
