import { isUtf8 } from 'node:buffer';
import type { z } from 'zod';
import { DatabaseFault } from '../db/faults.js';
import { InvalidCursor } from '../db/readHold.js';
import { Problem } from './errors.js';
import type { ErrorCode } from './errors.js';

/**
 * Which code a faulty field has, by its name: the same in every body and query (B18). A field that
 * is not listed here is INVALID_REQUEST.
 */
const codeOfField = new Map<string, ErrorCode>([
  ['sku', 'INVALID_SKU'],
  ['skus', 'INVALID_SKU'],
  ['quantity', 'INVALID_QUANTITY'],
  ['delta', 'INVALID_QUANTITY'],
  ['counted', 'INVALID_QUANTITY'],
  ['expected', 'INVALID_QUANTITY'],
  ['hold_seconds', 'INVALID_HOLD_SECONDS'],
  ['seconds', 'INVALID_HOLD_SECONDS'],
  ['refund_minor', 'INVALID_REFUND'],
  ['reason', 'REASON_REQUIRED'],
]);

/** So many faults are named: a file of 10,000 rows may have one in each cell. */
const mostFaults = 100;

/**
 * Checks a part of a request; every fault of it is named, the first kind decides the code.
 * @param lines where each of `rows` stands in a file; without it they are counted from 1
 */
export function check<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  where: 'body' | 'query' | 'path',
  lines?: number[],
): z.infer<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const faults = result.error.issues.map((issue) => ({
    code: codeOf(issue),
    field: fieldOf(issue.path),
    cell: cellOf(issue, lines),
    detail: sentenceOf(issue),
  }));
  // The form of the whole comes before the value of a field.
  const first = faults.find((fault) => fault.code === 'INVALID_REQUEST') ?? faults[0]!;
  const place =
    first.cell === undefined
      ? `${where} ${first.field || 'as a whole'}`
      : `line ${first.cell.line}, column ${first.cell.column || 'none'}`;
  const named = faults.slice(0, mostFaults);
  throw new Problem(first.code, `${place}: ${first.detail}.`, {
    members: {
      errors: named.map(({ field, cell, detail }) => ({ in: where, field, ...cell, detail })),
    },
  });
}

/** Line and column of a fault in a row of a table. */
function cellOf({ path: [name, row, column] }: z.core.$ZodIssue, lines?: number[]) {
  if (name !== 'rows' || typeof row !== 'number') return undefined;
  return { line: lines?.[row] ?? row + 1, column: String(column ?? '').slice(0, 100) };
}

function codeOf(issue: z.core.$ZodIssue): ErrorCode {
  if (issue.code === 'unrecognized_keys') return 'INVALID_REQUEST';
  const name = issue.path.findLast((part) => typeof part === 'string');
  const code = codeOfField.get(name ?? '') ?? 'INVALID_REQUEST';
  const about = issue.path.at(-1);
  // A list of SKUs that is no list, or too long, is not about any SKU; nor is a reason of 2 MB missing.
  if (about === 'skus' || (code === 'REASON_REQUIRED' && issue.code === 'too_big')) {
    return 'INVALID_REQUEST';
  }
  return code;
}

function sentenceOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== 'unrecognized_keys') return issue.message;
  const names = issue.keys.map((key) => JSON.stringify(key.slice(0, 100))).join(', ');
  return `has a field that this route does not know: ${names}`;
}

function fieldOf(path: PropertyKey[]): string {
  return path
    .map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part).slice(0, 100)}`))
    .join('')
    .replace(/^\./, '');
}

/**
 * JSON that Postgres can hold: UTF-8, no NUL, no half of a surrogate pair, no key `__proto__`.
 * Walks without recursion: 16 KB of `[` are 16,384 levels deep.
 */
export function parseJson(raw: Buffer): unknown {
  if (raw.length === 0) throw new Problem('INVALID_REQUEST', 'The body is empty; send JSON.');
  const text = utf8(raw);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('INVALID_REQUEST', 'The body is not valid JSON.');
  }
  const open: unknown[] = [value];
  while (open.length > 0) {
    const part = open.pop();
    if (typeof part === 'string') checkText(part, 'The body');
    else if (typeof part === 'object' && part !== null) {
      if (!Array.isArray(part)) {
        for (const key of Object.keys(part)) {
          checkText(key, 'The body');
          if (key === '__proto__') {
            throw new Problem('INVALID_REQUEST', 'The body has a field named "__proto__".');
          }
        }
      }
      for (const inner of Object.values(part)) open.push(inner);
    }
  }
  return value;
}

export function utf8(raw: Buffer): string {
  if (!isUtf8(raw)) throw new Problem('INVALID_REQUEST', 'The body is not UTF-8.');
  return raw.toString();
}

/** Text that Postgres can hold. */
export function checkText(text: string, what: string): void {
  if (text.includes('\0')) {
    throw new Problem('INVALID_REQUEST', `${what} has a NUL character, which can not be stored.`);
  }
  if (/\p{Surrogate}/u.test(text)) {
    throw new Problem('INVALID_REQUEST', `${what} has half of a surrogate pair: no valid Unicode.`);
  }
}

/**
 * A page of a list. The cursor comes back from the caller, who may have changed it: when Postgres
 * can't read what it is made of (SQLSTATE class 22), that is the caller's fault and not a defect.
 */
export async function page<T>(cursor: string | undefined, read: Promise<T>): Promise<T> {
  try {
    return await read;
  } catch (error) {
    const code = (error as { code?: unknown }).code;
    if (cursor === undefined || typeof code !== 'string' || !/^22...$/.test(code)) throw error;
    throw new InvalidCursor('cursor');
  }
}

/** What Express and its body reader throw, by the names they give it. */
interface HttpError {
  type?: unknown;
  status?: unknown;
}

/** Any error as the problem to answer with; undefined for a defect of ours. */
export function asProblem(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  if (error instanceof DatabaseFault) return ofDatabase(error);
  if (error instanceof InvalidCursor) {
    return new Problem('INVALID_REQUEST', 'The cursor is not one that this service gave.', {
      members: { errors: [{ in: 'query', field: 'cursor', detail: 'is not a next_cursor' }] },
    });
  }
  const { type, status } = (error ?? {}) as HttpError;
  if (type === 'entity.too.large') {
    return new Problem('BODY_TOO_LARGE', 'The body is larger than this route takes.');
  }
  if (type === 'encoding.unsupported') {
    return new Problem('INVALID_REQUEST', 'Send the body without Content-Encoding.');
  }
  if (type === 'request.aborted' || type === 'request.size.invalid') {
    return new Problem('INVALID_REQUEST', 'The body ended before its announced length.');
  }
  if (error instanceof URIError || (typeof status === 'number' && status >= 400 && status < 500)) {
    return new Problem('INVALID_REQUEST', 'The request can not be read.');
  }
  return undefined;
}

function ofDatabase(fault: DatabaseFault): Problem {
  switch (fault.code) {
    case 'RESERVATION_IN_PROGRESS':
      return new Problem(fault.code, 'A checkout with this key is running right now.');
    case 'STOCK_LEDGER_BUSY':
      return new Problem(fault.code, 'The hold is locked by another change of it.');
    case 'STOCK_LOCK_TIMEOUT':
      return new Problem(fault.code, 'The stock is locked by another change of it.');
    case 'DATABASE_UNAVAILABLE':
      return new Problem(fault.code, 'Postgres gave no answer in time.');
  }
}
