import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Readings } from '../../api/readings.js';
import type { Database } from '../../db/database.js';

/** A database whose reads end when the test says so. */
function slowly() {
  const reads: { ids: string[]; end: (sellable: number) => void; fail: (error: Error) => void }[] =
    [];
  const answer = (query: { values: [string[]] }) =>
    new Promise((resolve, reject) => {
      const end = (sellable: number) =>
        resolve({
          now: '2026-01-01T00:00:00.000Z',
          ...{ holds: [], carts: [], bought: [], refused: [] },
          products: [{ sku: 'A', sellable }],
        });
      reads.push({ ids: query.values[0], end, fail: reject });
    });
  const readings = new Readings({ reads: { answer } } as unknown as Database);
  const read = (withinMs = 20_000) => {
    const holdId = randomUUID();
    const found = readings
      .read({ holdId, buyerId: 'b', lines: [{ sku: 'A', quantity: 1 }] }, withinMs)
      .then(({ products }) => products.get('A')!.sellable);
    found.catch(() => {});
    return { holdId, found };
  };
  const whenReads = async (count: number) => {
    while (reads.length < count) await new Promise((again) => setTimeout(again, 1));
  };
  return { reads, read, whenReads };
}

describe('one read for many checkouts (R14)', () => {
  it('those that arrive together share one, those that arrive during it share the next', async () => {
    const { reads, read, whenReads } = slowly();
    const first = [read(), read(), read()];
    await whenReads(1);
    const second = [read(), read()];
    reads[0]!.end(7);
    expect(await Promise.all(first.map(({ found }) => found))).toEqual([7, 7, 7]);
    await whenReads(2);
    reads[1]!.end(0);
    expect(await Promise.all(second.map(({ found }) => found))).toEqual([0, 0]);
    expect(reads.map(({ ids }) => ids)).toEqual(
      [first, second].map((asked) => asked.map(({ holdId }) => holdId)),
    );
  });

  it('R12: nobody gets a read that began before he came, however soon it ends', async () => {
    const { reads, read, whenReads } = slowly();
    void read();
    await whenReads(1);
    const late = read();
    reads[0]!.end(0);
    await whenReads(2);
    reads[1]!.end(1);
    expect(await late.found).toBe(1);
  });

  it('a read that hangs holds nobody up: others begin beside it, three at once', async () => {
    const { reads, read, whenReads } = slowly();
    const asked = [read()];
    for (const count of [1, 2, 3]) {
      await whenReads(count);
      asked.push(read());
    }
    // The fourth waits for one of them.
    await new Promise((later) => setTimeout(later, 120));
    expect(reads).toHaveLength(3);
    reads[1]!.end(5);
    await whenReads(4);
    expect(await asked[1]!.found).toBe(5);
    expect(reads[3]!.ids).toEqual([asked[3]!.holdId]);
  });

  it('a read that fails fails for those that it was made for, and the next one is made', async () => {
    const { reads, read, whenReads } = slowly();
    const first = read();
    await whenReads(1);
    const second = read();
    reads[0]!.fail(new Error('gone'));
    await expect(first.found).rejects.toThrow('gone');
    await whenReads(2);
    reads[1]!.end(1);
    expect(await second.found).toBe(1);
  });

  it('more than 500 are read in turns; whoever has no time left is told so', async () => {
    const { reads, read, whenReads } = slowly();
    const many = Array.from({ length: 501 }, () => read());
    const hasty = read(20);
    await whenReads(1);
    await expect(hasty.found).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    reads[0]!.end(1);
    await whenReads(2);
    reads[1]!.end(2);
    const found = await Promise.all(many.map((one) => one.found));
    expect([found.filter((sum) => sum === 1).length, found[500]]).toEqual([500, 2]);
  });

  it('F35: the rest of more than 500, and whoever comes after it, waits for no read that hangs', async () => {
    const { reads, read, whenReads } = slowly();
    const many = Array.from({ length: 501 }, () => read());
    await whenReads(1);
    const late = read();
    await whenReads(2);
    reads[1]!.end(2);
    expect(await Promise.all([many[500]!.found, late.found])).toEqual([2, 2]);
  });
});
