import { stringify } from 'csv-stringify/sync';
import type { Call } from './route.js';

export type Cell = string | number | boolean | null;

/**
 * CSV (RFC 4180) with a head line. A text that a spreadsheet would take for a formula (it begins with
 * = + - @, a tab or a carriage return) gets a ' in front: reasons and names come from other people.
 */
export function csvText(columns: string[], rows: Cell[][]): string {
  return stringify([columns, ...rows], {
    record_delimiter: '\r\n',
    cast: {
      number: (value) => String(value),
      boolean: (value) => String(value),
      string: (value) => (/^[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(value) ? `'${value}` : value),
    },
  });
}

/** Where the next page is, for an answer that has no place for a cursor (RFC 8288). */
export function nextPage(
  path: string,
  query: Record<string, string | number | undefined>,
  nextCursor: string | null,
): Record<string, string> {
  if (nextCursor === null) return {};
  const next = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) next.set(name, String(value));
  next.set('cursor', nextCursor);
  return { link: `<${path}?${next.toString()}>; rel="next"` };
}

export function asksCsv({ accepts }: Pick<Call, 'accepts'>): boolean {
  return accepts === 'text/csv';
}
