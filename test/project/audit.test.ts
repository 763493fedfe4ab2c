import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { audit, type LedgerLine } from '../../cli/audit.js';
import { Http } from '../../cli/http.js';

/** The audit decides whether a start ends with 0, so it must see what is wrong. */
describe('the audit of the demonstration', () => {
  let server: Server;
  afterEach(() => new Promise((resolve) => server.close(resolve)));

  const counts = (available: number, held: number, sold = 0) => ({ available, held, sold });
  const line = (bin_version: number, from: object, to: object): LedgerLine =>
    ({
      bin: 'main',
      bin_version,
      hold_id: null,
      type: 'reserve',
      quantity: 1,
      from,
      to,
    }) as LedgerLine;

  async function audited(
    ledger: LedgerLine[],
    bin: ReturnType<typeof counts>,
    shown: ReturnType<typeof counts> & { total: number },
  ): Promise<string[]> {
    server = createServer((req, res) => {
      const path = req.url!.split('?')[0]!;
      if (path.endsWith('/movements')) {
        // Pages of two, so that the audit must follow the cursor.
        const at = Number(new URL(req.url!, 'http://x').searchParams.get('cursor') ?? 0);
        const next_cursor = at + 2 < ledger.length ? String(at + 2) : null;
        return res.end(JSON.stringify({ items: ledger.slice(at, at + 2), next_cursor }));
      }
      if (path.endsWith('/availability')) return res.end(JSON.stringify(shown));
      return res.end(JSON.stringify({ bins: [{ code: 'main', version: ledger.length, ...bin }] }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const http = new Http(`http://127.0.0.1:${port}`, AbortSignal.timeout(10_000));
    return (await audit(http, 'key', 'SKU')).wrong;
  }

  const good = [
    line(3, counts(1, 1), counts(0, 2)),
    line(2, counts(2, 0), counts(1, 1)),
    line(1, counts(0, 0), counts(2, 0)),
  ];

  it('finds nothing wrong where nothing is', async () => {
    expect(await audited(good, counts(0, 2), { ...counts(0, 2), total: 2 })).toEqual([]);
  });

  it('sees a movement that is missing', async () => {
    const wrong = await audited([good[0]!, good[2]!], counts(0, 2), { ...counts(0, 2), total: 2 });
    expect(wrong).toContain('movement 3 of bin main stands in place 2');
    expect(wrong).toContain('movement 3 of bin main does not start where the one before ended');
  });

  it('sees a bin that is not what its ledger says', async () => {
    const wrong = await audited(good, counts(1, 1), { ...counts(1, 1), total: 2 });
    expect(wrong).toEqual(['the ledger of bin main does not lead to its counts']);
  });

  it('sees stock below zero', async () => {
    const oversold = [...good, line(4, counts(0, 2), counts(-1, 3))];
    const wrong = await audited(oversold, counts(-1, 3), { ...counts(-1, 3), total: 2 });
    expect(wrong).toEqual(['bin main is below zero']);
  });

  it('sees counts that do not add up, and a total that is not the bins', async () => {
    const wrong = await audited(good, counts(0, 2), { ...counts(1, 2), total: 3 });
    expect(wrong).toEqual([
      'the total shown is 3, the bins have 2',
      'the counts shown do not add up to the total',
    ]);
  });
});
