import type { Database } from './database.js';

/**
 * What a shop may show. available + held + sold = total: overdue unpaid units are shown in
 * `available`, since the next claim takes them (R07); `sellable` is what a claim may take.
 */
export interface Availability {
  sku: string;
  active: boolean;
  available: number;
  sellable: number;
  held: number;
  sold: number;
  total: number;
  safetyStock: number;
  /** When the next open hold ends, or null. */
  nextReleaseAt: string | null;
  asOf: string;
}

/** Availability of each known product of the list, in one snapshot; unknown ones are left out. */
export async function readAvailability(
  db: Database,
  skus: string[],
  withinMs?: number,
): Promise<Availability[]> {
  return db.reads.answer<Availability[]>(
    {
      name: 'availability',
      text: `select tahan.availability($1::text[]) as answer`,
      values: [skus],
    },
    { withinMs },
  );
}
