import { audit } from '../test/db/audit.js';
import type { Visit } from './load/plan.js';

/** A period in which at least one unit of a product was free, by the wall clock. */
export interface Free {
  fromMs: number;
  untilMs: number;
}

/** What a movement left in a bin. */
export interface Left {
  bin: string;
  atMs: number;
  available: number;
}

export type Sql = <Row extends object>(text: string) => Promise<Row[]>;

/** @param left in the order in which it happened */
export function freePeriods(left: Left[]): Free[] {
  const bins = new Map<string, number>();
  const periods: Free[] = [];
  let sinceMs: number | undefined;
  for (const { bin, atMs, available } of left) {
    bins.set(bin, available);
    const free = [...bins.values()].some((units) => units > 0);
    if (free) sinceMs ??= atMs;
    else if (sinceMs !== undefined) {
      periods.push({ fromMs: sinceMs, untilMs: atMs });
      sinceMs = undefined;
    }
  }
  if (sinceMs !== undefined) periods.push({ fromMs: sinceMs, untilMs: Infinity });
  return periods;
}

/**
 * Buyers who were told "sold out" while a unit had been free for more than `graceMs`. When the shop
 * looked is not known, only that it was between the question and the answer; so the unit must have
 * been free from `graceMs` before the question until the answer.
 */
export function falselyRefused(visits: Visit[], free: Free[], graceMs = 1000): Visit[] {
  return visits.filter(
    ({ end, sentMs, decidedMs }) =>
      end === 'REFUSED' &&
      free.some(({ fromMs, untilMs }) => fromMs < sentMs - graceMs && untilMs > decidedMs),
  );
}

/**
 * What must be true after every run, whatever its numbers say: the books add up, no unit has two
 * owners, and everybody who was told "held" has a row that says so.
 *
 * @param statuses what such a row may say; a hold may have ended since
 */
export async function violationsOf(
  { url, sql }: { url: string; sql: Sql },
  visits: Visit[],
  statuses = ['HELD', 'CONFIRMED'],
): Promise<string[]> {
  const found = Object.entries(await audit(url)).map(
    ([rule, rows]) => `the audit found "${rule}": ${JSON.stringify(rows[0])}`,
  );
  const rows = await sql<{ id: string }>(
    `select id from tahan.holds where status in (${statuses.map((each) => `'${each}'`).join()})`,
  );
  return [...found, ...brokenPromises(visits, new Set(rows.map(({ id }) => id)))];
}

/** @param there the holds that may be told of */
export function brokenPromises(visits: Visit[], there: Set<string>): string[] {
  const told = visits.flatMap(({ holdId }) => holdId ?? []);
  const missing = told.filter((id) => !there.has(id));
  const found =
    missing.length === 0
      ? []
      : [`${missing.length} were told of a hold that has no row, such as ${missing[0]}`];
  if (new Set(told).size < told.length) found.push('two buyers were told of the same hold');
  return found;
}

/** What lay free of a product and when, by its ledger. */
export async function freeOf(sql: Sql, sku: string): Promise<Free[]> {
  const rows = await sql<{ bin: string; at: number; available: number }>(`
    select bin_id::text as bin, extract(epoch from created_at)::float8 * 1000 as at,
      to_available as available
    from tahan.movements where sku = '${sku}' order by created_at, bin_version`);
  return freePeriods(rows.map(({ bin, at, available }) => ({ bin, atMs: at, available })));
}
