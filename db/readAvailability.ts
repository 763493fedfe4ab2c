import type { Database } from './database.js';

/**
 * What a shop may show. available + held + sold = total: overdue unpaid units are shown in
 * `available`, since the next claim takes them (R07); `sellable` is what a claim may take.
 */
export interface Availability {
  sku: string;
  active: boolean;
  /** Whether a shop is shown numbers or only a level. */
  display: 'exact' | 'bands';
  available: number;
  sellable: number;
  held: number;
  sold: number;
  total: number;
  safetyStock: number;
  /** When the next open hold ends that is not paid in time, or null. */
  nextReleaseAt: string | null;
  /** The same counts of each bin; null unless asked for. */
  bins: BinAvailability[] | null;
  asOf: string;
}

export interface BinAvailability {
  code: string;
  available: number;
  sellable: number;
  held: number;
  sold: number;
  total: number;
  safetyStock: number;
}

/** Availability of each known product of the list, in one snapshot; unknown ones are left out (R12, B06). */
export async function readAvailability(
  db: Database,
  skus: string[],
  withinMs?: number,
  { bins = false }: { bins?: boolean } = {},
): Promise<Availability[]> {
  return db.reads.answer<Availability[]>(
    {
      name: 'availability',
      text: `select tahan.availability($1::text[], $2::boolean) as answer`,
      values: [skus, bins],
    },
    { withinMs },
  );
}
