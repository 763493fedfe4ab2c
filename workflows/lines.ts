/** Lines in an operator's words and as search attributes: for the start, and for what a cart turned out to hold. */
import type { Line } from '../db/values.js';

/** A KeywordList over 2,048 bytes makes the start itself fail (50 SKUs of 64 characters do). */
const maxSkuBytes = 1800;
/** The server allows 400 bytes of summary; an operator reads about this much. */
const maxSummaryLength = 180;

/** As many whole SKUs as fit; measured as the JSON that is sent. SKUs are ASCII: a character is a byte. */
export function skusThatFit(lines: readonly Pick<Line, 'sku'>[]): string[] {
  const skus: string[] = [];
  let bytes = 2;
  for (const sku of new Set(lines.map((line) => line.sku))) {
    bytes += JSON.stringify(sku).length + 1;
    if (bytes > maxSkuBytes) break;
    skus.push(sku);
  }
  return skus;
}

/** "2 x A, 1 x B and 48 more" */
export function wordsFor(lines: readonly Line[]): string {
  let words = '';
  for (const [index, { sku, quantity }] of lines.entries()) {
    const next = `${words === '' ? '' : `${words}, `}${quantity} x ${sku}`;
    if (next.length > maxSummaryLength) return `${words} and ${lines.length - index} more`;
    words = next;
  }
  return words;
}
