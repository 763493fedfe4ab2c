import type { Http } from './http.js';

interface Counts {
  available: number;
  held: number;
  sold: number;
}

export interface LedgerLine {
  bin: string;
  bin_version: number;
  hold_id: string | null;
  type: string;
  quantity: number;
  from: Counts;
  to: Counts;
}

export interface Audited {
  available: number;
  held: number;
  sold: number;
  total: number;
  ledger: LedgerLine[];
  /** Sentences, one for each thing that is wrong: none, if all is right. */
  wrong: string[];
}

/**
 * Checks a product from outside: its ledger, replayed from zero, leads without a gap to what its bins
 * say, and the counts that the shop may show add up to the bins' total.
 */
export async function audit(http: Http, operatorKey: string, sku: string): Promise<Audited> {
  const path = `/v1/products/${encodeURIComponent(sku)}`;
  const ledger = await wholeLedger(http, operatorKey, sku);
  const { bins } = await http.must<{ bins: (Counts & { code: string; version: number })[] }>(
    'GET',
    path,
    { key: operatorKey },
  );
  const shown = await http.must<Counts & { total: number }>('GET', `${path}/availability`, {
    key: operatorKey,
  });
  const wrong: string[] = [];
  for (const bin of bins) {
    const lines = ledger.filter((line) => line.bin === bin.code);
    lines.sort((a, b) => a.bin_version - b.bin_version);
    let last: Counts = { available: 0, held: 0, sold: 0 };
    for (const [index, line] of lines.entries()) {
      const where = `movement ${line.bin_version} of bin ${bin.code}`;
      if (line.bin_version !== index + 1) wrong.push(`${where} stands in place ${index + 1}`);
      if (!same(line.from, last)) wrong.push(`${where} does not start where the one before ended`);
      last = line.to;
    }
    if (!same(last, bin)) wrong.push(`the ledger of bin ${bin.code} does not lead to its counts`);
    if (Math.min(bin.available, bin.held, bin.sold) < 0)
      wrong.push(`bin ${bin.code} is below zero`);
  }
  const total = sum(bins, 'available') + sum(bins, 'held') + sum(bins, 'sold');
  const { available, held, sold } = shown;
  if (shown.total !== total)
    wrong.push(`the total shown is ${shown.total}, the bins have ${total}`);
  if (available + held + sold !== total) wrong.push('the counts shown do not add up to the total');
  return { available, held, sold, total, ledger, wrong };
}

async function wholeLedger(http: Http, key: string, sku: string): Promise<LedgerLine[]> {
  const lines: LedgerLine[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const query: string = new URLSearchParams({
      sku,
      limit: '200',
      ...(cursor && { cursor }),
    }).toString();
    const page: { items: LedgerLine[]; next_cursor: string | null } = await http.must(
      'GET',
      `/v1/movements?${query}`,
      { key },
    );
    lines.push(...page.items);
    cursor = page.next_cursor;
  }
  return lines;
}

function same(a: Counts, b: Counts): boolean {
  return a.available === b.available && a.held === b.held && a.sold === b.sold;
}

function sum(bins: Counts[], what: keyof Counts): number {
  return bins.reduce((total, bin) => total + bin[what], 0);
}
