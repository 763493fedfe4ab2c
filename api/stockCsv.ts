import { parse } from 'csv-parse/sync';
import { stringify } from 'csv-stringify/sync';
import type { z } from 'zod';
import { Problem } from './errors.js';
import { check } from './faults.js';
import { importRows, maxRows } from './schemas.js';
import type * as schemas from './schemas.js';

/** The columns of an import, in any order. */
const columns = ['sku', 'bin', 'action', 'quantity', 'expected', 'reason', 'reference'] as const;
const required = ['sku', 'bin', 'action', 'quantity'];
/** What an export tells beside them. An import passes over these, so that the file can come back. */
const told = ['available', 'held', 'sold', 'safety_stock', 'version'] as const;

export type Row = z.infer<typeof schemas.importRow>;

/** A table as it was sent: its rows, and the line of the file on which each begins. */
export interface Table {
  rows: Row[];
  lines: number[];
}

/**
 * Reads an import from CSV: comma, quotes doubled, a header line, UTF-8 with or without its mark.
 * @param reason of the rows that give none
 * @param most so many rows are taken
 * @throws Problem with `errors: [{line, column, detail}]`
 */
export function readRows(text: string, reason?: string, { most = maxRows } = {}): Table {
  const header = parsed(text, [], { to: 1 })[0]?.cells ?? [];
  checkHeader(header);
  const records = parsed(text, header, { from: 2 });
  if (records.length > most) throw tooMany(records[most]!.line);
  const rows = records.map(({ cells, line }) => {
    if (cells.length !== header.length) {
      throw broken(
        line,
        header[cells.length] ?? '',
        `the line has ${cells.length} cells, the header ${header.length}`,
      );
    }
    return rowOf(header, cells, reason);
  });
  const lines = records.map(({ line }) => line);
  return { rows: check(importRows(most), { rows }, 'body', lines).rows, lines };
}

function rowOf(header: string[], cells: string[], reason?: string): Record<string, unknown> {
  const row: Record<string, unknown> = reason === undefined ? {} : { reason };
  for (const [at, name] of header.entries()) {
    const cell = unescape(cells[at]!);
    if (cell === '' || (told as readonly string[]).includes(name)) continue;
    const isUnits = name === 'quantity' || name === 'expected';
    row[name] = isUnits && /^-?(0|[1-9]\d{0,14})$/.test(cell) ? Number(cell) : cell;
  }
  return row;
}

/** A page of bins as CSV: imported as it is, it says of each bin that it was counted as expected. */
export function writeStock(bins: z.infer<typeof schemas.stockedBin>[]): string {
  const rows = bins.map((bin) => ({
    ...bin,
    action: 'count',
    quantity: bin.on_hand,
    expected: bin.on_hand,
  }));
  return stringify(rows, {
    header: true,
    columns: [...columns, ...told],
    // A spreadsheet takes a cell that begins with = + - @ for a formula: an apostrophe goes before it.
    escape_formulas: true,
  });
}

/** The apostrophe that keeps a spreadsheet from calculating is no part of the text. */
function unescape(cell: string): string {
  return /^'[=+\-@\t\r]/.test(cell) ? cell.slice(1) : cell;
}

function checkHeader(header: string[]): void {
  const known: readonly string[] = [...columns, ...told];
  const faults = [
    ...header.flatMap((name, at) => {
      if (!known.includes(name)) return [[name.slice(0, 100), 'is not a column of an import']];
      return header.indexOf(name) < at ? [[name, 'stands there twice']] : [];
    }),
    ...required.filter((name) => !header.includes(name)).map((name) => [name, 'is missing']),
  ];
  const [first] = faults;
  if (first === undefined) return;
  const columnsAre = `the columns are ${columns.join(',')}`;
  throw new Problem(
    'INVALID_REQUEST',
    `line 1, column ${first[0] || 'none'}: ${first[1]}; ${columnsAre}.`,
    {
      members: {
        errors: faults
          .slice(0, 100)
          .map(([column, detail]) => ({ in: 'body', field: '', line: 1, column, detail })),
      },
    },
  );
}

interface Line {
  cells: string[];
  line: number;
}

/** What csv-parse throws, by the names it gives it. */
interface CsvFault {
  code?: unknown;
  index?: unknown;
}

function parsed(text: string, header: string[], part: { from?: number; to?: number }): Line[] {
  const records: Line[] = [];
  let last = header.length > 0 ? 1 : 0;
  try {
    parse(text, {
      ...part,
      bom: true,
      skip_empty_lines: true,
      relax_column_count: true,
      on_record: (cells: string[], { lines }: { lines: number }) => {
        // `lines` is where the record ends; a quoted cell may hold line breaks.
        const breaks = cells.join('').match(/\r\n|\r|\n/g)?.length ?? 0;
        records.push({ cells, line: lines - breaks });
        last = lines;
        return null;
      },
    });
  } catch (error) {
    const { code, index } = error as CsvFault;
    if (typeof code !== 'string') throw error;
    const column = typeof index === 'number' ? (header[index] ?? '') : '';
    const quotes = /QUOTE/.test(code);
    throw broken(
      last + 1,
      column,
      quotes ? 'has a quote that is not doubled or never closed' : 'can not be read as CSV',
    );
  }
  return records;
}

function broken(line: number, column: string, detail: string): Problem {
  return new Problem('INVALID_REQUEST', `line ${line}, column ${column || 'none'}: ${detail}.`, {
    members: { errors: [{ in: 'body', field: '', line, column, detail }] },
  });
}

function tooMany(line: number): Problem {
  return broken(line, '', 'an import has at most 10,000 rows');
}
