import { createHash, randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { utf8 } from '../api/faults.js';
import type * as schemas from '../api/schemas.js';
import { readRows, writeStock } from '../api/stockCsv.js';
import { Http } from './http.js';
import type { Answer } from './http.js';

/** Where the API is, and who asks it. */
export interface ApiOf {
  url: string;
  key: string;
  signal: AbortSignal;
}

export interface Asked {
  dryRun?: boolean | undefined;
  allOrNothing?: boolean | undefined;
  reason?: string | undefined;
  as?: string | undefined;
}

interface Told {
  /** A refused row, for whoever corrects the file. */
  result: (line: string) => void;
  progress: (line: string) => void;
}

type Imported = z.infer<typeof schemas.imported>;
type Page = { items: z.infer<typeof schemas.stockedBin>[]; next_cursor: string | null };

/** A call of 1,000 rows keeps its bins from being sold for a fifth of a second. */
const rowsOfACall = 1000;
const patienceMs = 60_000;

/**
 * Imports a file in calls of 1,000 rows, or in one when all or nothing is asked for. The whole file is
 * checked before anything is sent. Each call has a key made of the file and the call's place in it: an
 * import that was interrupted is repeated as it is, and what was applied is not applied again.
 */
export async function importFile(
  file: Buffer,
  asked: Asked,
  { url, key, signal }: ApiOf,
  told: Told,
): Promise<{ done: number; refused: number }> {
  const { rows, lines } = readRows(utf8(file), asked.reason, { most: Infinity });
  const size = asked.allOrNothing ? rows.length : rowsOfACall;
  const api = new Http(url, signal);
  const query = `dry_run=${Boolean(asked.dryRun)}&all_or_nothing=${Boolean(asked.allOrNothing)}`;
  const name = createHash('sha256')
    .update(JSON.stringify([asked.as, asked.reason, asked.allOrNothing, size]))
    .update(file)
    .digest('hex')
    .slice(0, 32);
  const sum = { done: 0, refused: 0, before: 0 };
  for (let from = 0; from < rows.length; from += size) {
    const part = rows.slice(from, from + size);
    // What a dry run says is true of its moment only: it is asked anew each time.
    const idempotencyKey = asked.dryRun ? randomUUID() : `stock:${name}:${from}`;
    const answer = await api.repeat(
      'POST',
      `/v1/stock/imports?${query}`,
      { key, headers: { 'idempotency-key': idempotencyKey }, body: { rows: part } },
      patienceMs,
    );
    const { refused, results } = resultsOf(answer, lines[from]!);
    sum.refused += refused;
    sum.done += answer.status === 200 ? part.length - refused : 0;
    if (answer.headers.has('idempotent-replayed')) sum.before += part.length;
    for (const { line, ...result } of results) {
      if (result.outcome !== 'DONE') told.result(refusal(lines[from + line - 1]!, result));
    }
    told.progress(
      `${from + part.length} of ${rows.length} rows: ${sum.done} done, ${sum.refused} refused`,
    );
  }
  if (asked.dryRun) told.progress('This was a dry run: nothing has changed.');
  else if (sum.before > 0) {
    told.progress(
      `${sum.before} rows of this file had been imported before and were not applied again; --as NAME imports them once more.`,
    );
  }
  return { done: sum.done, refused: sum.refused };
}

function resultsOf({ status, body }: Answer, line: number): Pick<Imported, 'refused' | 'results'> {
  const said = body as Imported & { code?: string; detail?: string };
  if (status === 200 || said.code === 'IMPORT_REFUSED') return said;
  throw new Error(
    `The call with the rows from line ${line} on was answered ${status}: ${said.detail ?? JSON.stringify(body)}`,
  );
}

function refusal(line: number, result: Omit<Imported['results'][number], 'line'>) {
  const { sku, bin, outcome, available, held } = result;
  const there = available === null ? '' : ` (${available} available, ${held} held)`;
  return `line ${line}: ${sku} ${bin} ${outcome}${there}`;
}

/** Every bin, page by page, in the columns that an import takes. */
export async function exportStock(
  { url, key, signal }: ApiOf,
  progress: (line: string) => void,
): Promise<string> {
  const api = new Http(url, signal);
  const bins: Page['items'] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `?cursor=${cursor}`;
    const page: Page = await api.must<Page>('GET', `/v1/stock${query}`, { key });
    bins.push(...page.items);
    cursor = page.next_cursor;
    progress(`${bins.length} bins`);
  } while (cursor !== null);
  return writeStock(bins);
}
