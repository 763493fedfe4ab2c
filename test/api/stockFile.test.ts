import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { exportStock, importFile } from '../../cli/stockFile.js';
import type { Asked } from '../../cli/stockFile.js';
import { everything } from '../db/books.js';
import { sharedService } from './service.js';

const service = sharedService({ workers: false });
const header = 'sku,bin,action,quantity,expected,reason,reference';

/** The command `npm run stock -- import`, with what it says. */
async function run(text: string, asked: Asked = {}, { stopAfter = Infinity } = {}) {
  const [results, progress] = [[] as string[], [] as string[]];
  const stop = new AbortController();
  const api = { url: service.url(), key: service.operatorKey, signal: stop.signal };
  const ended = await importFile(Buffer.from(text), asked, api, {
    result: (line) => results.push(line),
    progress: (line) => {
      if (progress.push(line) >= stopAfter) stop.abort();
    },
  }).catch((error: Error) => error.name + ': ' + error.message);
  return { ended, results, progress };
}

it('R37: a file of 2,500 rows goes in calls of 1,000 with progress; interrupted, it is repeated and each row is applied once', async () => {
  const sku = await service.product([0]);
  const rows = Array<string>(2500).fill(`${sku},b1,restock,1,,truck,`);
  rows[1700] = `${sku},b2,restock,1,,truck,`;
  const text = [header, ...rows, ''].join('\n');
  const cut = await run(text, {}, { stopAfter: 1 });
  expect(cut.ended).toContain('Abort');
  expect(cut.progress).toEqual(['1000 of 2500 rows: 1000 done, 0 refused']);
  expect((await service.counts(sku)).available).toBe(1000);

  const whole = await run(text);
  expect(whole.ended).toEqual({ done: 2499, refused: 1 });
  expect(whole.results).toEqual([`line 1702: ${sku} b2 BIN_NOT_FOUND`]);
  expect(whole.progress).toEqual([
    '1000 of 2500 rows: 1000 done, 0 refused',
    '2000 of 2500 rows: 1999 done, 1 refused',
    '2500 of 2500 rows: 2499 done, 1 refused',
    '1000 rows of this file had been imported before and were not applied again; --as NAME imports them once more.',
  ]);
  expect((await service.counts(sku)).available).toBe(2499);
  await run(text);
  expect((await service.counts(sku)).available).toBe(2499);
  await run(text, { as: 'the second truck' });
  expect((await service.counts(sku)).available).toBe(4998);
});

it('R37: a broken row of the last call is named by line and column before anything is sent', async () => {
  const sku = await service.product([0]);
  const rows = Array<string>(2500).fill(`${sku},b1,restock,1,,truck,`);
  const before = await everything(service.shop);
  const answer = await run([header, ...rows, `${sku},b1,restock,x,,truck,`].join('\n'));
  expect(answer.ended).toContain('line 2502, column quantity: must be a whole number');
  expect([answer.progress, answer.results]).toEqual([[], []]);
  expect(await everything(service.shop)).toEqual(before);
});

it('R37: a dry run says what would happen each time anew; all or nothing is one call that a refused row undoes', async () => {
  const sku = await service.product([5]);
  const row = (units: number) => `${sku},b1,adjust,${units},,,`;
  const text = [header, ...Array<string>(1200).fill(row(1)), row(-9999)].join('\n');
  const before = await everything(service.shop);
  const asked = { reason: 'stocktake' };
  for (let times = 0; times < 2; times += 1) {
    const dry = await run(text, { ...asked, dryRun: true });
    expect(dry.ended).toEqual({ done: 1200, refused: 1 });
    expect(dry.progress.at(-1)).toContain('nothing has changed');
  }
  const refused = await run(text, { ...asked, allOrNothing: true });
  expect(refused.ended).toEqual({ done: 0, refused: 1 });
  expect(refused.results).toEqual([
    `line 1202: ${sku} b1 INSUFFICIENT_STOCK (1205 available, 0 held)`,
  ]);
  expect(refused.progress).toEqual(['1201 of 1201 rows: 0 done, 1 refused']);
  expect(await everything(service.shop)).toEqual(before);
  const silent = await run(text);
  expect(silent.ended).toContain('line 2, column reason');
});

it('R36: what is exported can be edited and imported again', async () => {
  const sku = await service.product([3, 4], { safety_stock: [1, 0] });
  const api = { url: service.url(), key: service.operatorKey, signal: AbortSignal.timeout(60_000) };
  const progress: string[] = [];
  const text = await exportStock(api, (line) => progress.push(line));
  const lines = text.split('\n').filter((line) => line.startsWith(sku));
  expect(lines).toEqual([`${sku},b1,count,3,3,,,3,0,0,1,1`, `${sku},b2,count,4,4,,,4,0,0,0,1`]);
  expect(progress).toEqual([expect.stringMatching(/^\d+ bins$/)]);
  const edited = text.replace(`${sku},b2,count,4,`, `${sku},b2,count,6,`);
  const { ended } = await run(edited, { reason: `stocktake ${randomUUID()}` });
  expect(ended).toMatchObject({ refused: 0 });
  expect(await service.ledger(sku)).toEqual(['manual_adjustment 2 b2']);
});

it('a key that may not import, and an API that is away, are said in a sentence', async () => {
  const text = `${header}\na,b1,restock,1,,truck,`;
  const told = { result: () => {}, progress: () => {} };
  const api = { url: service.url(), key: service.shopKey, signal: AbortSignal.timeout(60_000) };
  await expect(importFile(Buffer.from(text), {}, api, told)).rejects.toThrow(
    /rows from line 2 on was answered 403: .*operator key/,
  );
  await expect(
    importFile(Buffer.from(text), {}, { ...api, url: 'http://127.0.0.1:9' }, told),
  ).rejects.toThrow();
});
