import { randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { beforeAll, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { csvText } from '../../api/csv.js';
import type * as schemas from '../../api/schemas.js';
import { cancel } from '../../db/cancel.js';
import { readHold } from '../../db/readHold.js';
import { sharedService } from './service.js';
import type { Movement, Page } from './service.js';

type Statement = z.infer<typeof schemas.statement>;

const service = sharedService({ workers: false });
const operator = () => ({ key: service.operatorKey });

let sku: string;
let hold: { id: string; order: string; buyer: string };
let between: string;

beforeAll(async () => {
  sku = await service.product([4, 3], { price: { amount_minor: 100, currency: 'EUR' } });
  const buyerId = `buyer-${randomUUID()}`;
  const id = await service.shop.hold({ [sku]: 5 }, { order: true, buyerId });
  const { order } = (await readHold(service.shop.db, id))!;
  hold = { id, order: order!.orderNumber, buyer: buyerId };
  between = await service.shop.now();
  await cancel(service.shop.db, id, '=1+1', 'buyer');
  const path = `/v1/products/${sku}/bins/b2/adjustments`;
  for (const reason of ['-2 found', 'a "quoted", word\nand a line', 'ordinary']) {
    expect((await service.post(path, { delta: 1, reason }, operator())).status).toBe(200);
  }
});

async function read(query: string): Promise<Movement[]> {
  const answer = await service.get<Page<Movement>>(`/v1/movements?${query}`, operator());
  expect(answer.status, answer.text).toBe(200);
  return answer.body.items;
}

/** CSV as text: the client of the other tests reads JSON. */
async function readCsv(path: string, accept = 'text/csv') {
  const answer = await fetch(`${service.url()}${path}`, {
    headers: { authorization: `Bearer ${service.operatorKey}`, accept },
  });
  const text = await answer.text();
  return {
    status: answer.status,
    type: answer.headers.get('content-type') ?? '',
    next: /^<(.+)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1],
    text,
    rows: () => parse<Record<string, string>>(text, { columns: true }),
  };
}

describe('GET /v1/movements', () => {
  it('R31: is filtered by product, bin, type, hold, order, actor and time, each alone and together', async () => {
    const all = await read(`sku=${sku}`);
    expect(all.map(({ type, bin }) => `${type} ${bin}`)).toEqual([
      ...Array<string>(3).fill('manual_adjustment b2'),
      'release_reservation b2',
      'release_reservation b1',
      'reserve b2',
      'reserve b1',
      'restock b2',
      'restock b1',
    ]);
    const where = (condition: (one: Movement) => boolean) => all.filter(condition);
    const ofHold = where(({ hold_id }) => hold_id === hold.id);
    expect(ofHold).toHaveLength(4);
    expect(await read(`hold_id=${hold.id}`)).toEqual(ofHold);
    expect(await read(`order=${hold.order}`)).toEqual(ofHold);
    expect(ofHold.every(({ order_number }) => order_number === hold.order)).toBe(true);
    expect(await read(`actor=buyer%20${hold.buyer}`)).toEqual(
      where(({ type }) => type === 'reserve'),
    );
    expect(await read(`sku=${sku}&bin=b1`)).toEqual(where(({ bin }) => bin === 'b1'));
    expect(await read(`sku=${sku}&actor=operator:ann&type=restock`)).toEqual(
      where(({ type }) => type === 'restock'),
    );
    const [after, before] = await Promise.all([
      read(`sku=${sku}&from=${between}`),
      read(`sku=${sku}&to=${between}`),
    ]);
    expect([...after, ...before]).toEqual(all);
    expect(after).toHaveLength(5);
    expect(await read(`hold_id=${hold.id}&bin=b2&sku=${sku}&to=${between}`)).toEqual([all[5]]);
    for (const nothing of [
      `sku=none`,
      `sku=${sku}&bin=none`,
      `hold_id=${randomUUID()}`,
      'order=NONE',
      'actor=nobody',
    ])
      expect(await read(nothing), nothing).toEqual([]);
  });

  it('R31: as CSV it has every column, a Link to the next page, and the same rows as the JSON', async () => {
    const all = await read(`sku=${sku}`);
    const rows: Record<string, string>[] = [];
    let pages = 0;
    for (let path: string | undefined = `/v1/movements?sku=${sku}&limit=4`; path; pages += 1) {
      const page = await readCsv(path);
      expect([page.status, page.type]).toEqual([200, 'text/csv; charset=utf-8']);
      expect(page.text.split('\r\n')[0]).toBe(
        'created_at,sku,bin,bin_version,type,quantity,from_available,from_held,from_sold,to_available,to_held,to_sold,reason,actor,hold_id,order_number,request_id,metadata,id',
      );
      rows.push(...page.rows());
      path = page.next;
    }
    expect(pages).toBe(3);
    expect(rows.map(({ id }) => id)).toEqual(all.map(({ id }) => id));
    for (const [index, row] of rows.entries()) {
      const one = all[index]!;
      expect(row).toMatchObject({
        created_at: one.created_at,
        bin: one.bin,
        bin_version: String(one.bin_version),
        type: one.type,
        quantity: String(one.quantity),
        from_available: String(one.from.available),
        to_sold: String(one.to.sold),
        hold_id: one.hold_id ?? '',
        order_number: one.order_number ?? '',
        actor: one.actor,
      });
    }
    expect(rows.map(({ reason }) => reason!).slice(0, 4)).toEqual([
      'ordinary',
      'a "quoted", word\nand a line',
      "'-2 found",
      "'=1+1",
    ]);
  });

  it('JSON is what comes unless CSV is preferred; CSV takes 5,000 rows a page, JSON 200', async () => {
    for (const accept of ['*/*', 'application/json', 'text/html', 'application/json, text/csv'])
      expect((await readCsv('/v1/movements', accept)).type).toContain('application/json');
    const preferred = await readCsv('/v1/movements', 'text/csv, application/json;q=0.5');
    expect(preferred.type).toContain('text/csv');
    expect((await readCsv('/v1/movements?limit=5000')).status).toBe(200);
    expect((await readCsv('/v1/movements?limit=5001')).status).toBe(400);
    const json = await service.get('/v1/movements?limit=201', operator());
    expect([json.status, json.body.code]).toEqual([400, 'INVALID_REQUEST']);
    expect(json.body.errors).toMatchObject([{ in: 'query', field: 'limit' }]);
  });

  it('a cell that a spreadsheet would run begins with an apostrophe; numbers and other texts stay', () => {
    const texts = ['=1', '+1', '-1', '@x', '\tx', '\rx', '＝1', 'a=1', ' =1', "'=1", '', '1-2'];
    const text = csvText(['cell', 'number'], [...texts.map((one) => [one, -5]), [null, true]]);
    const rows = parse(text).slice(1);
    expect(rows.map(([cell]) => cell)).toEqual([
      ...["'=1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "'＝1", 'a=1', ' =1', "'=1", '', '1-2'],
      '',
    ]);
    expect(rows.map(([, number]) => number)).toEqual([...texts.map(() => '-5'), 'true']);
  });
});

describe('GET /v1/products/:sku/statement', () => {
  const path = (query = '') => `/v1/products/${sku}/statement?${query}`;

  async function statement(query = ''): Promise<Statement> {
    const answer = await service.get<Statement>(path(query), operator());
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  }

  it('R31: opens, lists by bin and version, and closes, per bin and for the product', async () => {
    const { opening, closing, bins, items, from, to } = await statement();
    expect([from, to]).toEqual([null, null]);
    expect(opening).toEqual({ available: 0, held: 0, sold: 0 });
    expect(closing).toEqual({ available: 10, held: 0, sold: 0 });
    expect(bins).toEqual([
      {
        code: 'b1',
        opening: { version: 0, available: 0, held: 0, sold: 0 },
        closing: { version: 3, available: 4, held: 0, sold: 0 },
      },
      {
        code: 'b2',
        opening: { version: 0, available: 0, held: 0, sold: 0 },
        closing: { version: 6, available: 6, held: 0, sold: 0 },
      },
    ]);
    expect(items.map(({ bin, bin_version }) => `${bin} ${bin_version}`)).toEqual([
      ...['b1 1', 'b1 2', 'b1 3', 'b2 1', 'b2 2', 'b2 3', 'b2 4', 'b2 5', 'b2 6'],
    ]);
    const later = await statement(`from=${between}`);
    expect(later.opening).toEqual({ available: 2, held: 5, sold: 0 });
    expect([later.from, later.items.length]).toEqual([between, 5]);
    const earlier = await statement(`to=${between}&bin=b1`);
    expect(earlier.closing).toEqual({ available: 0, held: 4, sold: 0 });
  });

  it('R31: as CSV each page opens and closes, and the Link leads through all of it', async () => {
    const lines: string[] = [];
    for (let next: string | undefined = path('limit=5'); next !== undefined;) {
      const page = await readCsv(next);
      expect(page.status, page.text).toBe(200);
      for (const row of page.rows())
        lines.push(
          `${row['bin']} ${row['bin_version']} ${row['type']} ${row['to_available']}/${row['to_held']}`,
        );
      next = page.next;
    }
    expect(lines).toEqual([
      '  opening 0/0',
      'b1 0 opening 0/0',
      'b1 1 restock 4/0',
      'b1 2 reserve 0/4',
      'b1 3 release_reservation 4/0',
      'b1 3 closing 4/0',
      'b2 0 opening 0/0',
      'b2 1 restock 3/0',
      'b2 2 reserve 2/1',
      'b2 2 closing 2/1',
      '  closing 6/1',
      '  opening 6/1',
      'b2 2 opening 2/1',
      'b2 3 release_reservation 3/0',
      'b2 4 manual_adjustment 4/0',
      'b2 5 manual_adjustment 5/0',
      'b2 6 manual_adjustment 6/0',
      'b2 6 closing 6/0',
      '  closing 10/0',
    ]);
  });

  it('what is not there and what is not allowed is told apart', async () => {
    const refusals: [string, number, string][] = [
      ['/v1/products/none/statement', 404, 'PRODUCT_NOT_FOUND'],
      ['/v1/products/a%20b/statement', 422, 'INVALID_SKU'],
      [path('bin=none'), 404, 'BIN_NOT_FOUND'],
      [path('from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z'), 400, 'INVALID_REQUEST'],
      [path('cursor=x'), 400, 'INVALID_REQUEST'],
      [path('limit=201'), 400, 'INVALID_REQUEST'],
      ['/v1/movements?bin=b1', 400, 'INVALID_REQUEST'],
      ['/v1/movements?hold_id=1', 400, 'INVALID_REQUEST'],
      ['/v1/movements?order=', 400, 'INVALID_REQUEST'],
      ['/v1/movements?actor=a%00', 400, 'INVALID_REQUEST'],
    ];
    for (const [asked, status, code] of refusals) {
      const answer = await service.get(asked, operator());
      expect([asked, answer.status, answer.body.code]).toEqual([asked, status, code]);
    }
  });
});
