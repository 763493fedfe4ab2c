import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { z } from 'zod';
import type * as schemas from '../../api/schemas.js';
import { readRows, writeStock } from '../../api/stockCsv.js';
import { everything } from '../db/books.js';
import { atOnce, sharedService, statuses } from './service.js';
import type { Movement, Page, Product } from './service.js';

const service = sharedService({ workers: false });

type Imported = z.infer<typeof schemas.imported>;
type StockedBin = z.infer<typeof schemas.stockedBin>;
type SettingChange = z.infer<typeof schemas.settingChange>;

const header = 'sku,bin,action,quantity,expected,reason,reference';

function importCsv(text: string, query = '', idempotencyKey: string = randomUUID()) {
  return service.send<Imported>('POST', `/v1/stock/imports${query}`, {
    key: service.operatorKey,
    raw: text,
    headers: { 'content-type': 'text/csv' },
    idempotencyKey,
  });
}

/** The same as a client does it: the key is repeated while the answer is "try again", on a machine that is busy. */
async function importPatiently(text: string, query = '') {
  const key = randomUUID();
  for (let tries = 1; ; tries += 1) {
    const answer = await importCsv(text, query, key);
    expect(answer.took).toBeLessThan(5000);
    if (answer.status !== 503 || tries === 10) return answer;
  }
}

function importRows(rows: object[], query = '', idempotencyKey: string = randomUUID()) {
  return service.post<Imported>(
    `/v1/stock/imports${query}`,
    { rows },
    { key: service.operatorKey, idempotencyKey },
  );
}

/** All pages as they are sent as CSV. */
async function exportCsv(limit = 10_000): Promise<string[]> {
  const pages: string[] = [];
  let path: string | undefined = `/v1/stock?limit=${limit}`;
  while (path !== undefined) {
    const answer: Response = await fetch(service.url() + path, {
      headers: { authorization: `Bearer ${service.operatorKey}`, accept: 'text/csv' },
    });
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      200,
      'text/csv; charset=utf-8',
    ]);
    pages.push(await answer.text());
    path = /^<(.*)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
  }
  return pages;
}

/** The units of a product's bins, as [available, safety stock]. */
async function units(sku: string): Promise<[number, number][]> {
  const { body } = await service.get<Product>(`/v1/products/${sku}`, { key: service.operatorKey });
  return body.bins!.map((bin) => [bin.available, bin.safety_stock]);
}

describe('an import of stock', () => {
  it('R37: takes CSV and JSON alike, answers row by row with its line, and leaves movements with key, reason and reference', async () => {
    const sku = await service.product([10, 10]);
    const key = randomUUID();
    // With a mark at the beginning, quotes, line breaks in a cell, an empty line, and a column order of its own.
    const text = [
      `\ufeffreason,sku,bin,quantity,action,expected,reference`,
      `"truck, ""big""\n2 pallets",${sku},b1,5,restock,,D-7`,
      ``,
      `broken,${sku},b2,-11,adjust,,`,
      `'=counted,${sku},b2,8,count,10,'+49`,
      `peak,${sku},b1,3,safety_stock,,`,
    ].join('\r\n');
    const answer = await importCsv(text, '', key);
    expect([answer.status, answer.body.done, answer.body.refused], answer.text).toEqual([
      200, 3, 1,
    ]);
    expect(
      answer.body.results.map(({ line, bin, outcome, available, safety_stock, version }) => [
        line,
        `${bin} ${outcome}`,
        [available, safety_stock, version],
      ]),
    ).toEqual([
      [2, 'b1 DONE', [15, 0, 2]],
      [5, 'b2 INSUFFICIENT_STOCK', [10, 0, 1]],
      [6, 'b2 DONE', [8, 0, 2]],
      [7, 'b1 DONE', [15, 3, 2]],
    ]);
    const movements = await service.get<Page<Movement>>(`/v1/movements?sku=${sku}&limit=2`, {
      key: service.operatorKey,
    });
    expect(
      movements.body.items.map(({ type, quantity, reason, actor, request_id, metadata }) => [
        `${type} ${quantity}`,
        [reason, actor, request_id],
        metadata,
      ]),
    ).toEqual([
      ['manual_adjustment 2', ['=counted', 'operator:ann', key], { reference: '+49' }],
      ['restock 5', ['truck, "big"\n2 pallets', 'operator:ann', key], { reference: 'D-7' }],
    ]);
    const json = await importRows([
      { sku, bin: 'b1', action: 'adjust', quantity: -1, reason: 'lost' },
      { sku: 'none', bin: 'b1', action: 'adjust', quantity: -1, reason: 'lost' },
    ]);
    expect(json.body).toMatchObject({ dry_run: false, rows: 2, done: 1, refused: 1 });
    expect(json.body.results.map(({ line, outcome }) => [line, outcome])).toEqual([
      [1, 'DONE'],
      [2, 'PRODUCT_NOT_FOUND'],
    ]);
    expect(await units(sku)).toEqual([
      [14, 3],
      [8, 0],
    ]);
  });

  it('R37: a broken row in the middle is named by line and column, and nothing of the file is applied', async () => {
    const sku = await service.product([10]);
    const good = `${sku},b1,restock,1,,truck,`;
    const file = (...middle: string[]) =>
      [header, ...Array<string>(40).fill(good), ...middle, good, ''].join('\n');
    const before = await everything(service.shop);
    const broken: [string, number, string, string][] = [
      [`${sku},b1,restock,1.5,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,1e2,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,-5,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,0,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,NaN,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,true,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,[],,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock, 2,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,2147483648,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,restock,9007199254740993,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,adjust,0,,truck,`, 422, 'INVALID_QUANTITY', 'quantity'],
      [`${sku},b1,count,5,,truck,`, 422, 'INVALID_QUANTITY', 'expected'],
      [`${sku},b1,count,5,-1,truck,`, 422, 'INVALID_QUANTITY', 'expected'],
      [`${sku},b1,restock,5,5,truck,`, 422, 'INVALID_QUANTITY', 'expected'],
      [`-x,b1,restock,5,,truck,`, 422, 'INVALID_SKU', 'sku'],
      [`,b1,restock,5,,truck,`, 422, 'INVALID_SKU', 'sku'],
      [`${sku},b 1,restock,5,,truck,`, 400, 'INVALID_REQUEST', 'bin'],
      [`${sku},b1,reserve,5,,truck,`, 400, 'INVALID_REQUEST', 'action'],
      [`${sku},b1,restock,5,,,`, 422, 'REASON_REQUIRED', 'reason'],
      [`${sku},b1,restock,5,," ",`, 422, 'REASON_REQUIRED', 'reason'],
      [`${sku},b1,restock,5,,truck`, 400, 'INVALID_REQUEST', 'reference'],
      [`${sku},b1,restock,5,,truck,,`, 400, 'INVALID_REQUEST', ''],
      [`${sku},b1,restock,5,,"tru"ck,`, 400, 'INVALID_REQUEST', 'reason'],
      [`${sku},b1,restock,5,,"truck,`, 400, 'INVALID_REQUEST', 'reason'],
    ];
    for (const [middle, status, code, column] of broken) {
      const { body, ...answer } = await importCsv(file(middle));
      expect([middle, answer.status, body.code], answer.text).toEqual([middle, status, code]);
      expect([middle, body.errors[0]]).toMatchObject([middle, { line: 42, column }]);
      expect(body.detail).toContain(`line 42, column ${column || 'none'}`);
    }
    expect(await everything(service.shop)).toEqual(before);
    // A hundred faults are named, and no more.
    const many = await importCsv(file(...Array<string>(200).fill(broken[0]![0])));
    expect(many.body.errors.map(({ line }) => line)).toEqual(
      Array.from({ length: 100 }, (_, at) => 42 + at),
    );
  });

  it('R37: a file without rows, with an unknown, doubled or missing column, of another type or with more than 10,000 rows is 400', async () => {
    const before = await everything(service.shop);
    const line = 'a,b1,restock,1,,truck,';
    const faults: [string, string | undefined][] = [
      ['', 'sku'],
      [`${header}\n`, undefined],
      [`${header},price\n${line},5`, 'price'],
      [`${header},sku\n${line},a`, 'sku'],
      ['sku,bin,quantity,reason\na,b1,5,x', 'action'],
      [header.replaceAll(',', ';') + '\n', header.replaceAll(',', ';')],
      [`${header}\n${`${line}\n`.repeat(10_001)}`, ''],
    ];
    for (const [text, column] of faults) {
      const { status, body, text: said } = await importCsv(text);
      expect([status, body.code], said).toEqual([400, 'INVALID_REQUEST']);
      expect([text.slice(0, 60), body.errors[0]!.column]).toEqual([text.slice(0, 60), column]);
    }
    for (const rows of [[], Array(10_001).fill(null), [{}], ['x'], [{ extra: 1 }], 'x']) {
      const answer = await importRows(rows as object[]);
      expect([answer.status, answer.body.code], answer.text).toEqual(
        expect.arrayContaining([expect.stringMatching(/INVALID_/) as string]),
      );
      expect([400, 422]).toContain(answer.status);
    }
    const plain = { key: service.operatorKey, idempotencyKey: 'k', raw: header };
    const sent = { ...plain, headers: { 'content-type': 'text/plain' } };
    expect((await service.send('POST', '/v1/stock/imports', sent)).status).toBe(400);
    for (const query of [
      '?dry_run=yes',
      '?all_or_nothing=',
      '?dry_run=true&dry_run=true',
      '?x=1',
    ]) {
      expect((await importCsv(`${header}\n${line}`, query)).status).toBe(400);
    }
    const { body } = await service.post(
      '/v1/stock/imports',
      { rows: [] },
      { key: service.operatorKey },
    );
    expect(body.code).toBe('IDEMPOTENCY_KEY_REQUIRED');
    const large = await importCsv(`${header}\n${`${line}\n`.repeat(230_000)}`);
    expect([large.status, large.body.code]).toEqual([413, 'BODY_TOO_LARGE']);
    expect(await everything(service.shop)).toEqual(before);
  });

  it('R37: all or nothing with a refused row is 409 IMPORT_REFUSED, names the row, and has changed nothing', async () => {
    const sku = await service.product([10]);
    const before = await everything(service.shop);
    const rows = [1, -12, 2].map((quantity) => ({
      sku,
      bin: 'b1',
      action: 'adjust',
      quantity,
      reason: 'count',
    }));
    for (const query of ['?all_or_nothing=true', '?all_or_nothing=true&dry_run=true']) {
      const { status, body } = await importRows(rows, query);
      expect([status, body.code, body.rows, body.refused]).toEqual([409, 'IMPORT_REFUSED', 3, 1]);
      expect(body.results).toMatchObject([
        { line: 2, sku, bin: 'b1', outcome: 'INSUFFICIENT_STOCK', available: 11 },
      ]);
    }
    expect(await everything(service.shop)).toEqual(before);
    const whole = await importRows([rows[0]!, rows[2]!], '?all_or_nothing=true');
    expect([whole.status, whole.body.all_or_nothing, whole.body.done]).toEqual([200, true, 2]);
  });

  it('R37: ten at once with one key import once and answer the same, replayed; another file under the key is 422', async () => {
    const sku = await service.product([0]);
    const [key, text] = [randomUUID(), `${header}\n${sku},b1,restock,5,,truck,\n`];
    const answers = await atOnce(10, () => importCsv(text, '', key));
    expect(statuses(answers)).toEqual({ 200: 10 });
    expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
    expect(answers.filter(({ headers }) => !('idempotent-replayed' in headers))).toHaveLength(1);
    expect(await units(sku)).toEqual([[5, 0]]);
    for (const [other, query] of [
      [text.replace('5', '6'), ''],
      [text, '?dry_run=true'],
    ]) {
      const answer = await importCsv(other!, query, key);
      expect([answer.status, answer.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    }
  });
});

describe('CSV for spreadsheets', () => {
  it('a cell that a spreadsheet would calculate has an apostrophe before it, which an import takes away', () => {
    const bin: StockedBin = {
      sku: '=1+1',
      bin: '@b',
      available: 1,
      held: 0,
      on_hand: 1,
      sold: 0,
      safety_stock: 0,
      sellable: 1,
      version: 1,
      updated_at: '',
    };
    expect(writeStock([bin]).split('\n')[1]).toBe(`'=1+1,'@b,count,1,1,,,1,0,0,0,1`);
    const cells = ['=1', '+1', '-1', '@a', "it's", "''=1"];
    const { rows } = readRows(
      [header, ...cells.map((cell) => `a,b,restock,1,,'${cell},'${cell}`)].join('\n'),
    );
    expect(rows.map(({ reason }) => reason)).toEqual(['=1', '+1', '-1', '@a', "'it's", "'''=1"]);
  });
});

describe('one bin', () => {
  const post = <T>(path: string, body: object, idempotencyKey?: string) =>
    service.post<T>(path, body, {
      key: service.operatorKey,
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    });

  it('B20, R37: a count sets what is there; a stale one is 409 STOCK_CHANGED with what is there; half of one is 422', async () => {
    const sku = await service.product([100]);
    const path = `/v1/products/${sku}/bins/b1/adjustments`;
    const counted = await post(path, {
      counted: 200,
      expected: 100,
      reason: 'count',
      reference: 'C1',
    });
    expect(counted.body).toMatchObject({ available: 200, held: 0, version: 2 });
    const before = await everything(service.shop);
    const stale = await post<{ on_hand: number }>(path, {
      counted: 90,
      expected: 100,
      reason: 'c',
    });
    expect([stale.status, stale.body.code, stale.body.on_hand]).toEqual([
      409,
      'STOCK_CHANGED',
      200,
    ]);
    expect(stale.body).toMatchObject({ available: 200, held: 0 });
    expect(stale.body.detail).toContain('200 units are in bin b1');
    expect(stale.body.detail).toContain('Count again');
    for (const [fields, field] of [
      [{ counted: 5 }, 'expected'],
      [{ expected: 5 }, 'counted'],
      [{ counted: 5, expected: 200, delta: 1 }, 'delta'],
      [{}, 'delta'],
    ] as const) {
      const answer = await post(path, { ...fields, reason: 'c' });
      expect([answer.status, answer.body.errors[0]!.field]).toEqual([422, field]);
    }
    const silent = await post(path, { counted: 5, expected: 200 });
    expect([silent.status, silent.body.code]).toEqual([422, 'REASON_REQUIRED']);
    const same = await post<{ version: number }>(path, {
      counted: 200,
      expected: 200,
      reason: 'c',
    });
    expect([same.status, same.body.version]).toEqual([200, 2]);
    expect(await everything(service.shop)).toEqual(before);
    expect(await service.ledger(sku)).toEqual(['manual_adjustment 100 b1']);
  });

  it('R37: a move leaves two movements of one key; repeated it is made once; to itself, to nowhere or too much is refused', async () => {
    const sku = await service.product([5, 0]);
    const path = `/v1/products/${sku}/bins/b1/move`;
    const key = randomUUID();
    const body = { to: 'b2', quantity: 2, reason: 'nearer', reference: 'W-3' };
    const answers = await atOnce(5, () => post(path, body, key));
    expect(statuses(answers)).toEqual({ 200: 5 });
    const bin = { sku, held: 0, sold: 0, safety_stock: 0 };
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(answers[0]!.body).toEqual({
      sku,
      from: { ...bin, bin: 'b1', available: 3, version: 2 },
      to: { ...bin, bin: 'b2', available: 2, version: 1 },
    });
    const { body: moved } = await service.get<Page<Movement>>(
      `/v1/movements?sku=${sku}&type=manual_adjustment`,
      { key: service.operatorKey },
    );
    expect(moved.items.map(({ request_id, metadata }) => [request_id, metadata])).toEqual([
      [key, { reference: 'W-3', moved_from: 'b1' }],
      [key, { reference: 'W-3', moved_to: 'b2' }],
    ]);
    const refusals: [string, object, string][] = [
      [path, { ...body, to: 'b1' }, '422 SAME_BIN'],
      [path, { ...body, to: 'b9' }, '404 BIN_NOT_FOUND'],
      [path.replace('b1', 'b9'), body, '404 BIN_NOT_FOUND'],
      [path.replace(sku, 'none'), body, '404 PRODUCT_NOT_FOUND'],
      [path, { ...body, quantity: 4 }, '409 INSUFFICIENT_STOCK'],
      [path, { ...body, quantity: 2_000_000_000 }, '409 INSUFFICIENT_STOCK'],
      [path, { ...body, reason: ' ' }, '422 REASON_REQUIRED'],
      [path, { ...body, to: 'b 2' }, '400 INVALID_REQUEST'],
      [path, { ...body, to: undefined }, '400 INVALID_REQUEST'],
    ];
    for (const [at, sent, refusal] of refusals) {
      const answer = await post(at, sent);
      expect(`${answer.status} ${answer.body.code}`).toBe(refusal);
    }
    const reused = await post(path, { ...body, quantity: 1 }, key);
    expect([reused.status, reused.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    expect(await units(sku)).toEqual([
      [3, 0],
      [2, 0],
    ]);
  });

  it('R36: the changes of a product and its bins are read newest first with before, after, who and why', async () => {
    const sku = await service.product([1], { price: { amount_minor: 500, currency: 'EUR' } });
    const operator = { key: service.operatorKey };
    const path = `/v1/products/${sku}`;
    await service.put(`${path}/bins/b1`, { safety_stock: 2, reason: 'breakage' });
    await service.put(path, { price: null, max_extensions: 3, reason: 'free now' });
    const { body } = await service.get<Page<SettingChange>>(`${path}/changes`, operator);
    expect(body.items.map(({ bin, reason, actor }) => [bin, reason, actor])).toEqual([
      [null, 'free now', 'operator:ann'],
      ['b1', 'breakage', 'operator:ann'],
      ['b1', null, 'operator:ann'],
      [null, null, 'operator:ann'],
    ]);
    expect(body.items[0]!.before).toMatchObject({
      price: { amount_minor: 500, currency: 'EUR' },
      max_extensions: 2,
    });
    expect(body.items[0]!.after).toMatchObject({ price: null, max_extensions: 3 });
    expect(body.items[1]).toMatchObject({
      before: { safety_stock: 0 },
      after: { safety_stock: 2 },
    });
    const first = await service.get<Page<SettingChange>>(`${path}/changes?limit=3`, operator);
    const cursor = first.body.next_cursor;
    const rest = await service.get<Page<SettingChange>>(
      `${path}/changes?limit=3&cursor=${cursor}`,
      operator,
    );
    expect([...first.body.items, ...rest.body.items]).toEqual(body.items);
    const unknown = await service.get('/v1/products/none/changes', operator);
    expect([unknown.status, unknown.body.code]).toEqual([404, 'PRODUCT_NOT_FOUND']);
  });

  it('B21: neither a product nor a bin has a DELETE', async () => {
    const sku = await service.product([1]);
    const before = await everything(service.shop);
    for (const path of [`/v1/products/${sku}`, `/v1/products/${sku}/bins/b1`]) {
      const answer = await service.send('DELETE', path, { key: service.operatorKey });
      expect([answer.status, answer.body.code]).toEqual([404, 'ROUTE_NOT_FOUND']);
    }
    expect(await everything(service.shop)).toEqual(before);
  });
});

// The last one: its ten thousand bins are audited after every test that follows.
describe('an import of ten thousand rows', () => {
  it(
    'R37, R36: 10,000 rows are answered within 5 s; a dry run predicts each field, and what was exported is edited and imported again',
    { timeout: 60_000 },
    async () => {
      const name = `E${randomUUID().slice(0, 6)}`;
      await service.shop.query(
        `insert into tahan.products (sku) select $1 || '-' || i from generate_series(0, 99) i`,
        [name],
      );
      await service.shop.query(
        `insert into tahan.bins (sku, code) select $1 || '-' || i % 100, 'b' || i / 100
       from generate_series(0, 9999) i`,
        [name],
      );
      const rows = Array.from({ length: 10_000 }, (_, i) =>
        [
          `${name}-${i % 100}`,
          `b${Math.floor(i / 100)}`,
          'restock',
          1 + (i % 9),
          '',
          'truck',
          '',
        ].join(),
      );
      const text = [header, ...rows].join('\n');
      const before = await everything(service.shop);
      const dry = await importPatiently(text, '?dry_run=true');
      expect([dry.status, dry.body.dry_run]).toEqual([200, true]);
      expect(await everything(service.shop)).toEqual(before);
      const made = await importPatiently(text);
      expect([made.status, made.body.done]).toEqual([200, 10_000]);
      expect(made.body).toEqual({ ...dry.body, dry_run: false });

      const [pages, smaller] = [await exportCsv(), await exportCsv(4000)].map((each) =>
        each.map((page, at) => (at === 0 ? page : page.split('\n').slice(1).join('\n'))),
      ) as [string[], string[]];
      expect(smaller.length).toBeGreaterThan(pages.length);
      expect(smaller.join('')).toBe(pages.join(''));
      const [head, ...lines] = pages.join('').trimEnd().split('\n');
      expect(head).toBe(`${header},available,held,sold,safety_stock,version`);
      const ours = lines.filter((line) => line.startsWith(name));
      expect(ours).toHaveLength(10_000);
      expect(ours[0]).toBe(`${name}-0,b0,count,1,1,,,1,0,0,0,1`);
      const json = await service.get<Page<StockedBin>>('/v1/stock?limit=1', {
        key: service.operatorKey,
      });
      expect(json.body.items).toMatchObject([
        { sku: `${name}-0`, bin: 'b0', on_hand: 1, version: 1 },
      ]);
      // As it was exported, it says that all is as expected.
      const some = ours.slice(0, 100);
      const same = await importPatiently([head, ...some].join('\n'), '?reason=stocktake');
      expect([same.body.done, same.body.refused]).toEqual([100, 0]);
      expect(same.body.results[0]).toMatchObject({ outcome: 'DONE', available: 1, version: 1 });
      expect((await importPatiently([head, ...some].join('\n'))).body.code).toBe('REASON_REQUIRED');
      const edited = some.with(0, some[0]!.replace('count,1,1,,', 'count,7,1,found six,'));
      const counted = await importPatiently([head, ...edited].join('\n'), '?reason=stocktake');
      expect(counted.body.results[0]).toMatchObject({ outcome: 'DONE', available: 7, version: 2 });
      expect(await service.ledger(`${name}-0`)).toHaveLength(101);
      // The same file once more is stale where it changed something.
      const stale = await importPatiently([head, ...edited].join('\n'), '?reason=stocktake');
      expect([stale.body.refused, stale.body.results[0]!.outcome]).toEqual([1, 'STOCK_CHANGED']);
    },
  );
});
