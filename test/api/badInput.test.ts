import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { beforeAll, describe, expect, it } from 'vitest';
import { everything } from '../db/books.js';
import { sharedService } from './service.js';
import type { Answer, Sent } from './service.js';

const service = sharedService({ workers: false });
let sku: string;

beforeAll(async () => {
  sku = await service.product([50]);
});

/** Sends it and insists that stock, ledger and holds are untouched. */
async function refused(
  method: string,
  path: string,
  sent: Sent,
  status: number,
  code: string,
): Promise<Answer<unknown>> {
  const before = await everything(service.shop);
  const answer = await service.send<unknown>(method, path, sent);
  const what = `${method} ${path} ${String(sent.raw ?? JSON.stringify(sent.body)).slice(0, 200)}`;
  expect([answer.status, answer.body.code], `${what}: ${answer.text}`).toEqual([status, code]);
  expect(await everything(service.shop)).toEqual(before);
  return answer;
}

/** A checkout with its JSON as written here: JSON.stringify would not write all of it. */
function checkout(
  json: string,
  status: number,
  code: string,
  headers: Record<string, string> = {},
) {
  const sent = { raw: json, idempotencyKey: randomUUID(), headers };
  return refused('POST', '/v1/holds', sent, status, code);
}

const line = (quantity: string) =>
  `{"buyer_id":"b","lines":[{"sku":"${sku}","quantity":${quantity}}]}`;

/** As JSON; `undefined` leaves the field out. */
const oddQuantities: [string, string | undefined][] = [
  ['-5', '-5'],
  ['0', '0'],
  ['-0', '-0'],
  ['1.5', '1.5'],
  ['"2"', '"2"'],
  ['"1e2"', '"1e2"'],
  ['1e-1', '1e-1'],
  ['true', 'true'],
  ['null', 'null'],
  ['missing', undefined],
  ['10001', '10001'],
  ['2147483647', '2147483647'],
  ['2147483648', '2147483648'],
  ['4294967297', '4294967297'],
  ['9007199254740993', '9007199254740993'],
  ['1e309', '1e309'],
  ['"NaN"', '"NaN"'],
  ['""', '""'],
  ['[]', '[]'],
  ['[1]', '[1]'],
  ['{}', '{}'],
];

describe('B18: odd quantities are 422 INVALID_QUANTITY and change nothing', () => {
  it.each(oddQuantities)('a checkout of %s', async (_, value) => {
    const json = value === undefined ? line('1').replace(',"quantity":1', '') : line(value);
    const { body } = await checkout(json, 422, 'INVALID_QUANTITY');
    expect(body.detail).toContain('lines[0].quantity');
    expect(body.detail).toContain('whole number from 1 to 10,000');
    await refused(
      'POST',
      '/v1/orders',
      { raw: json, idempotencyKey: randomUUID() },
      422,
      'INVALID_QUANTITY',
    );
  });

  it('a checkout of two lines, 2147483647 and 1', async () => {
    const two = `{"buyer_id":"b","lines":[{"sku":"${sku}","quantity":2147483647},{"sku":"${sku}","quantity":1}]}`;
    await checkout(two, 422, 'INVALID_QUANTITY');
  });

  it.each(oddQuantities.filter(([name]) => !['-5', '10001', '2147483647'].includes(name)))(
    'an adjustment by %s',
    async (_, value) => {
      const json = value === undefined ? '{"reason":"r"}' : `{"delta":${value},"reason":"r"}`;
      const path = `/v1/products/${sku}/bins/b1/adjustments`;
      await refused('POST', path, { raw: json, key: service.operatorKey }, 422, 'INVALID_QUANTITY');
    },
  );

  it.each(oddQuantities)('R33: a line of %s in a cart', async (_, value) => {
    const path = `/v1/carts/b/lines/${sku}`;
    const raw = value === undefined ? '{}' : `{"quantity":${value}}`;
    await refused('PUT', path, { raw }, 422, 'INVALID_QUANTITY');
  });

  it.each(oddQuantities.filter(([name]) => name !== '10001'))('a move of %s', async (_, value) => {
    const field = value === undefined ? '' : `"quantity":${value},`;
    const raw = `{${field}"to":"b2","reason":"r"}`;
    const path = `/v1/products/${sku}/bins/b1/move`;
    await refused('POST', path, { raw, key: service.operatorKey }, 422, 'INVALID_QUANTITY');
  });

  it.each(oddQuantities.filter(([name]) => !['0', '-0', '10001'].includes(name)))(
    'a count of %s, and one that expected it',
    async (_, value) => {
      const path = `/v1/products/${sku}/bins/b1/adjustments`;
      for (const [odd, other] of [
        ['counted', 'expected'],
        ['expected', 'counted'],
      ]) {
        const field = value === undefined ? '' : `"${odd}":${value},`;
        const raw = `{${field}"${other}":50,"reason":"r"}`;
        await refused('POST', path, { raw, key: service.operatorKey }, 422, 'INVALID_QUANTITY');
      }
    },
  );

  it.each(oddQuantities.filter(([name]) => name !== '10001'))(
    'an imported row of %s, after one that is right',
    async (_, value) => {
      const field = value === undefined ? '' : `"quantity":${value},`;
      const row = (quantity: string, action: string) =>
        `{"sku":"${sku}","bin":"b1","action":"${action}",${quantity}"reason":"r"}`;
      const zeroIsOdd = value !== '0' && value !== '-0';
      for (const action of ['restock', 'adjust', ...(zeroIsOdd ? ['safety_stock'] : [])]) {
        if (value === '-5' && action === 'adjust') continue;
        const raw = `{"rows":[${row('"quantity":1,', 'restock')},${row(field, action)}]}`;
        const sent = { raw, key: service.operatorKey, idempotencyKey: randomUUID() };
        const { body } = await refused('POST', '/v1/stock/imports', sent, 422, 'INVALID_QUANTITY');
        expect(body.errors[0]).toMatchObject({ line: 2, column: 'quantity' });
      }
    },
  );

  it.each(oddQuantities.filter(([name]) => name !== '10001'))(
    'a restock of %s',
    async (_, value) => {
      const json = value === undefined ? '{"reason":"r"}' : `{"quantity":${value},"reason":"r"}`;
      const path = `/v1/products/${sku}/bins/b1/restock`;
      await refused('POST', path, { raw: json, key: service.operatorKey }, 422, 'INVALID_QUANTITY');
    },
  );

  it.each(oddQuantities)('a release and a return of %s', async (_, value) => {
    const one = value === undefined ? '' : `,"quantity":${value}`;
    const json = `{"lines":[{"sku":"${sku}"${one}}],"reason":"r","restock":true}`;
    const path = `/v1/holds/${randomUUID()}`;
    const given = json.replace(',"restock":true', '');
    await refused('POST', `${path}/release`, { raw: given }, 422, 'INVALID_QUANTITY');
    const operator = { raw: json, key: service.operatorKey };
    await refused('POST', `${path}/return`, operator, 422, 'INVALID_QUANTITY');
  });

  it.each(
    oddQuantities.filter(
      ([name]) =>
        !['0', '-0', 'missing', '10001', '2147483647', '2147483648', '4294967297'].includes(name),
    ),
  )('a refund_minor of %s is 422 INVALID_REFUND', async (_, value) => {
    const json = `{"reason":"r","restock":true,"refund_minor":${value}}`;
    const path = `/v1/holds/${randomUUID()}/return`;
    await refused('POST', path, { raw: json, key: service.operatorKey }, 422, 'INVALID_REFUND');
  });

  it.each([
    '{"reason":"r"}',
    '{"reason":"r","restock":"yes"}',
    '{"reason":"r","restock":null}',
    '{"reason":"r","restock":true,"refund":5}',
    '{"reason":"r","restock":true,"lines":[]}',
  ])('a return of %s is 400 INVALID_REQUEST', async (raw) => {
    const path = `/v1/holds/${randomUUID()}/return`;
    await refused('POST', path, { raw, key: service.operatorKey }, 400, 'INVALID_REQUEST');
  });

  it.each(oddQuantities.filter(([name]) => !['10001', '2147483647'].includes(name)))(
    'hold_seconds and an extension of %s seconds are 422 INVALID_HOLD_SECONDS',
    async (_, value) => {
      if (value === undefined) return;
      const json = `{"buyer_id":"b","lines":[{"sku":"${sku}","quantity":1}],"hold_seconds":${value}}`;
      await checkout(json, 422, 'INVALID_HOLD_SECONDS');
      const path = `/v1/holds/${randomUUID()}/extend`;
      await refused('POST', path, { raw: `{"seconds":${value}}` }, 422, 'INVALID_HOLD_SECONDS');
    },
  );
});

describe('SKUs', () => {
  const odd = [
    '""',
    '"a b"',
    '" a"',
    '"a\\n"',
    '"-a"',
    '".a"',
    '"_a"',
    '"__proto__"',
    '"ａｂｃ"',
    '"а"',
    '"a\\u200bb"',
    '"a\\u0301"',
    '"a\';drop table x;--"',
    '"a%00"',
    `"${'a'.repeat(65)}"`,
    '5',
    'null',
    'true',
    '{}',
    '["a"]',
  ];
  it.each(odd)('%s is 422 INVALID_SKU', async (value) => {
    const json = `{"buyer_id":"b","lines":[{"sku":${value},"quantity":1}]}`;
    const { body } = await checkout(json, 422, 'INVALID_SKU');
    expect(body.errors).toMatchObject([{ in: 'body', field: 'lines[0].sku' }]);
  });

  it.each([
    'constructor',
    'toString',
    'hasOwnProperty',
    'prototype',
    'a:b/c.d_e-f',
    'a'.repeat(64),
  ])('%s is a SKU like any other: unknown', async (value) => {
    const json = `{"buyer_id":"b","lines":[{"sku":"${value}","quantity":1}]}`;
    await checkout(json, 404, 'PRODUCT_NOT_FOUND');
    const path = `/v1/products/${encodeURIComponent(value)}`;
    await refused('GET', path, {}, 404, 'PRODUCT_NOT_FOUND');
    await refused('GET', `${path}/availability`, {}, 404, 'PRODUCT_NOT_FOUND');
  });

  it.each(['%20', '__proto__', 'a%00b', 'a%0a', '%C3%A4', 'a'.repeat(65)])(
    'in a path, %s is 4xx',
    async (value) => {
      const nul = value.includes('%00');
      const [status, code] = nul
        ? ([400, 'INVALID_REQUEST'] as const)
        : ([422, 'INVALID_SKU'] as const);
      await refused('GET', `/v1/products/${value}`, {}, status, code);
      await refused('GET', `/v1/products/${value}/availability`, {}, status, code);
      const operator = { key: service.operatorKey, body: {} };
      await refused('PUT', `/v1/products/${value}`, operator, status, code);
      await refused('PUT', `/v1/products/${value}/bins/b1`, operator, status, code);
      const list = { body: { skus: [decodeURIComponent(value)] } };
      await refused('POST', '/v1/availability', list, status, code);
      const line = `/v1/carts/b/lines/${value}`;
      await refused('PUT', line, { body: { quantity: 1 } }, status, code);
      await refused('DELETE', line, {}, status, code);
    },
  );

  it.each(['b'.repeat(201), 'a%00b', '%E0%A4%A'])(
    'in the path of a cart, the buyer %s is 400',
    async (buyer) => {
      for (const [method, path] of [
        ['GET', `/v1/carts/${buyer}`],
        ['DELETE', `/v1/carts/${buyer}`],
        ['PUT', `/v1/carts/${buyer}/lines/${sku}`],
        ['DELETE', `/v1/carts/${buyer}/lines/${sku}`],
      ] as const) {
        const body = method === 'PUT' ? { body: { quantity: 1 } } : {};
        await refused(method, path, body, 400, 'INVALID_REQUEST');
      }
    },
  );

  it('R33: a line of a cart has a quantity and nothing else: no price, no name, no other product', async () => {
    for (const more of [{ price: 1 }, { sku }, { name: 'x' }, { unit_price_minor: 1 }]) {
      const body = { quantity: 1, ...more };
      await refused('PUT', `/v1/carts/b/lines/${sku}`, { body }, 400, 'INVALID_REQUEST');
    }
    const unknown = { body: { quantity: 1 } };
    await refused('PUT', '/v1/carts/b/lines/unknown', unknown, 404, 'PRODUCT_NOT_FOUND');
  });
});

describe('bodies', () => {
  it.each([
    [
      'an unknown field',
      () => line('1').replace('}]', '}],"status":"CONFIRMED"').replace(']}', '}'),
    ],
    ['an unknown field', () => `{"status":"CONFIRMED",${line('1').slice(1)}`],
    ['an unknown field of a line', () => line('1,"price":0')],
    ['__proto__', () => `{"__proto__":{"x":1},${line('1').slice(1)}`],
    ['__proto__ in a line', () => line('1,"__proto__":{"x":1}')],
    ['__proto__ in metadata', () => `{"metadata":{"__proto__":"x"},${line('1').slice(1)}`],
    ['constructor', () => `{"constructor":{"prototype":{"x":1}},${line('1').slice(1)}`],
    ['no buyer', () => line('1').replace('"buyer_id":"b",', '')],
    ['an empty buyer', () => line('1').replace('"b"', '""')],
    ['a buyer of 201 characters', () => line('1').replace('"b"', `"${'b'.repeat(201)}"`)],
    ['a buyer that is a number', () => line('1').replace('"b"', '5')],
    ['a buyer with a NUL', () => line('1').replace('"b"', '"a\\u0000b"')],
    ['half of a surrogate pair', () => line('1').replace('"b"', '"a\\ud83db"')],
    ['a NUL in a key', () => `{"metadata":{"a\\u0000":"x"},${line('1').slice(1)}`],
    ['no lines', () => '{"buyer_id":"b"}'],
    ['empty lines', () => '{"buyer_id":"b","lines":[]}'],
    ['lines that are an object', () => '{"buyer_id":"b","lines":{"0":{"sku":"a","quantity":1}}}'],
    ['a line that is null', () => '{"buyer_id":"b","lines":[null]}'],
    [
      '51 lines',
      () => `{"buyer_id":"b","lines":[${Array(51).fill('{"sku":"a","quantity":1}').join()}]}`,
    ],
    ['metadata that is no object', () => `{"metadata":[],${line('1').slice(1)}`],
    ['metadata of numbers', () => `{"metadata":{"a":1},${line('1').slice(1)}`],
    [
      'metadata of 2,049 bytes',
      () => `{"metadata":{"a":"${'x'.repeat(2041)}"},${line('1').slice(1)}`,
    ],
    ['null', () => 'null'],
    ['a list', () => '[]'],
    ['text', () => '"text"'],
    ['a number', () => '5'],
    ['nothing', () => ''],
    ['broken JSON', () => '{"buyer_id":'],
    ['two values', () => '{}{}'],
    ['NaN', () => line('NaN')],
    ['a comment', () => `// hi\n${line('1')}`],
    ['depth 8,000', () => '['.repeat(8000) + ']'.repeat(8000)],
    [
      '1,000 unknown keys',
      () =>
        JSON.stringify(Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`k${i}`, 1]))),
    ],
  ])('%s is 400 INVALID_REQUEST', async (_, json) => {
    await checkout(json(), 400, 'INVALID_REQUEST');
  });

  it('prototypes stay as they were', () => {
    expect(({} as { x?: unknown }).x).toBeUndefined();
  });

  it('metadata of 2,048 bytes and a buyer of 200 characters of any script are taken as far as the stock', async () => {
    const full = `{"metadata":{"a":"${'x'.repeat(2040)}"},${line('51').slice(1)}`;
    expect(Buffer.byteLength(JSON.stringify({ a: 'x'.repeat(2040) }))).toBe(2048);
    await checkout(
      full.replace('"b"', `"${'ß'.repeat(200)}"`).replace(sku, 'unknown'),
      404,
      'PRODUCT_NOT_FOUND',
    );
  });

  it('broken UTF-8, other charsets, other types and compressed bodies are 400; +json and text are not JSON', async () => {
    const bytes = Buffer.from(line('1').replace('"b"', '"b\u00e9"'), 'latin1');
    await refused('POST', '/v1/holds', { raw: bytes, idempotencyKey: 'k' }, 400, 'INVALID_REQUEST');
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/json; charset=utf-16',
      'application/jsonp',
      'multipart/form-data; boundary=x',
      '*/*',
    ]) {
      const { body } = await checkout(line('1'), 400, 'INVALID_REQUEST', { 'content-type': type });
      expect(body.detail).toContain('Content-Type: application/json');
    }
    await checkout(line('1'), 400, 'INVALID_REQUEST', { 'content-encoding': 'gzip' });
  });

  it('F37: 16 KB are read, one byte more is 413 BODY_TOO_LARGE, with and without a length', async () => {
    const pad = (size: number) => `{"pad":"${'x'.repeat(size - 10)}"}`;
    await checkout(pad(16 * 1024), 400, 'INVALID_REQUEST');
    const { body } = await checkout(pad(16 * 1024 + 1), 413, 'BODY_TOO_LARGE');
    expect(body.detail).toContain('at most 16 KB');
    const chunked = await socket([
      `POST /v1/holds HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.shopKey}\r\n`,
      'idempotency-key: k\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n',
      ...Array.from({ length: 40 }, () => `200\r\n${'x'.repeat(512)}\r\n`),
      '0\r\n\r\n',
    ]);
    expect(chunked).toContain('HTTP/1.1 413');
    expect(chunked).toContain('BODY_TOO_LARGE');
  });
});

describe('headers', () => {
  it('a checkout without an Idempotency-Key, or with an empty one, is 400 IDEMPOTENCY_KEY_REQUIRED', async () => {
    const body = { buyer_id: 'b', lines: [{ sku, quantity: 1 }] };
    for (const path of ['/v1/holds', '/v1/orders']) {
      await refused('POST', path, { body }, 400, 'IDEMPOTENCY_KEY_REQUIRED');
      const empty = { body, idempotencyKey: '' };
      await refused('POST', path, empty, 400, 'IDEMPOTENCY_KEY_REQUIRED');
    }
  });

  it('an Idempotency-Key of 256 characters, of other characters, or sent twice is 400', async () => {
    const body = { buyer_id: 'b', lines: [{ sku, quantity: 1 }] };
    for (const idempotencyKey of ['x'.repeat(256), 'schl\u00fcssel', 'a\tb']) {
      await refused('POST', '/v1/holds', { body, idempotencyKey }, 400, 'INVALID_REQUEST');
    }
    const before = await everything(service.shop);
    for (const path of ['/v1/holds', `/v1/products/${sku}/bins/b1/restock`]) {
      const twice = [
        ...['authorization', `Bearer ${service.operatorKey}`, 'content-type', 'application/json'],
        ...['idempotency-key', 'a', 'Idempotency-Key', 'a'],
      ];
      const json = JSON.stringify(path === '/v1/holds' ? body : { quantity: 1, reason: 'r' });
      const answer = await service.rawRequest('POST', path, twice, json);
      expect([answer.status, answer.body.code]).toEqual([400, 'INVALID_REQUEST']);
      expect(answer.body.detail).toContain('idempotency-key was sent 2 times');
    }
    expect(await everything(service.shop)).toEqual(before);
  });
});

describe('paths and queries', () => {
  it.each([
    ['GET', '/'],
    ['GET', '/v1'],
    ['GET', '/v1/nothing'],
    ['GET', '/v1/holds/'],
    ['GET', '/V1/holds'],
    ['DELETE', '/v1/holds/1'],
    ['DELETE', '/v1/products/a'],
    ['DELETE', '/v1/products/a/bins/b1'],
    ['GET', '/v1/stock/imports'],
    ['PATCH', '/v1/products/a'],
    ['PUT', '/v1/holds'],
    ['POST', '/v1/products/a'],
    ['GET', '/v1/holds/1/cancel'],
    ['GET', '/../etc/passwd'],
    ['GET', '/v1/carts'],
    ['POST', '/v1/carts/a'],
    ['GET', '/v1/carts/a/lines'],
  ])('%s %s is 404 ROUTE_NOT_FOUND', async (method, path) => {
    const { body } = await refused(method, path, {}, 404, 'ROUTE_NOT_FOUND');
    expect(body.detail).toContain(`There is no ${method}`);
  });

  it('a path that can not be decoded is 400', async () => {
    await refused('GET', '/v1/holds/%E0%A4%A', {}, 400, 'INVALID_REQUEST');
    await refused('GET', '/v1/holds/%00', {}, 400, 'INVALID_REQUEST');
  });

  it.each([
    'limit=0',
    'limit=201',
    'limit=1.5',
    'limit=-1',
    'limit=1e2',
    'limit=',
    'limit=1&limit=2',
    'cursor=x',
    'cursor=',
    'cursor[]=x',
    'cursor=bnVsbA',
    `cursor=${Buffer.from('["1","--------------------------------1---"]').toString('base64url')}`,
    `cursor=${Buffer.from('["1","------------------------------------"]').toString('base64url')}`,
    `cursor=${Buffer.from(JSON.stringify(['2025-01-01', randomUUID(), 'x'])).toString('base64url')}`,
    'status=held',
    'status=HELD&status=HELD',
    'buyer_id=',
    'buyer_id=a%00b',
    'expires_before=tomorrow',
    'expires_before=2025-13-01T00:00:00Z',
    'expires_before=2025-02-30T00:00:00Z',
    'expires_before=0000-01-01T00:00:00Z',
    'expires_before=2025-01-01T00:00:00',
    'unknown=1',
    '__proto__=1',
    'buyer_id[x]=1',
  ])('GET /v1/holds?%s is 400', async (query) => {
    const sent = { key: service.operatorKey };
    await refused('GET', `/v1/holds?${query}`, sent, 400, 'INVALID_REQUEST');
  });

  it.each([
    'status=HELD',
    'status=rejected',
    'status=paid&status=paid',
    'buyer_id=',
    'buyer_id=a%00b',
    'cursor=x',
    `cursor=${Buffer.from('["1","------------------------------------"]').toString('base64url')}`,
    'limit=0',
    'limit=201',
    'sku=a',
  ])('R33: GET /v1/orders?%s is 400', async (query) => {
    const sent = { key: service.operatorKey };
    await refused('GET', `/v1/orders?${query}`, sent, 400, 'INVALID_REQUEST');
  });

  it.each([
    'type=gift',
    'from=x',
    'to=2025-01-01',
    'cursor=x',
    `cursor=${Buffer.from('["-1"]').toString('base64url')}`,
    `cursor=${Buffer.from('["99999999999999999999"]').toString('base64url')}`,
    `cursor=${Buffer.from('["tomorrow","1"]').toString('base64url')}`,
    `cursor=${Buffer.from('["2026-01-01","-1"]').toString('base64url')}`,
    `cursor=${Buffer.from('["2026-01-01","99999999999999999999"]').toString('base64url')}`,
    'limit=999',
    'reason=x',
    'bin=b1',
    'sku=a&bin=a%20b',
    'hold_id=1',
    'order=',
    'actor=',
    'actor=a&actor=a',
  ])('GET /v1/movements?%s is 400', async (query) => {
    const sent = { key: service.operatorKey };
    await refused('GET', `/v1/movements?${query}`, sent, 400, 'INVALID_REQUEST');
  });

  it.each([
    'from=x',
    'from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z',
    'bin=a%20b',
    'type=restock',
    'limit=201',
    'cursor=x',
    `cursor=${Buffer.from('["1","1","1","1"]').toString('base64url')}`,
    `cursor=${Buffer.from('["1","1","1","1","-1"]').toString('base64url')}`,
    `cursor=${Buffer.from('["1","1","1","1","1e3"]').toString('base64url')}`,
    `cursor=${Buffer.from('["999999999","1","1","1","1"]').toString('base64url')}`,
  ])('GET /v1/products/:sku/statement?%s is 400', async (query) => {
    const sent = { key: service.operatorKey };
    const path = `/v1/products/${sku}/statement?${query}`;
    await refused('GET', path, sent, 400, 'INVALID_REQUEST');
  });

  it.each([
    ['', 400, 'INVALID_REQUEST'],
    ['skus=', 422, 'INVALID_SKU'],
    ['skus=a,', 422, 'INVALID_SKU'],
    ['skus=a%00', 400, 'INVALID_REQUEST'],
    ['skus=a&skus=b', 400, 'INVALID_REQUEST'],
    ['skus=a&limit=1', 400, 'INVALID_REQUEST'],
    [`skus=${Array.from({ length: 51 }, (_, i) => i).join()}`, 400, 'INVALID_REQUEST'],
    ['skus=none', 404, 'PRODUCT_NOT_FOUND'],
  ])('GET /v1/availability/stream?%s is %i %s', async (query, status, code) => {
    await refused('GET', `/v1/availability/stream?${query}`, {}, status, code);
  });

  it.each([
    `cursor=${Buffer.from('["a\\u0000b"]').toString('base64url')}`,
    'cursor=x',
    'limit=0',
    'q=1',
  ])('GET /v1/products?%s is 400', async (query) => {
    await refused('GET', `/v1/products?${query}`, {}, 400, 'INVALID_REQUEST');
  });

  it.each([
    'limit=0',
    'limit=10001',
    'cursor=x',
    `cursor=${Buffer.from('["a"]').toString('base64url')}`,
    'q=1',
  ])('GET /v1/stock?%s is 400', async (query) => {
    const sent = { key: service.operatorKey };
    await refused('GET', `/v1/stock?${query}`, sent, 400, 'INVALID_REQUEST');
    const changes = `/v1/products/${sku}/changes?${query}`;
    await refused('GET', changes, sent, 400, 'INVALID_REQUEST');
  });

  it('a query where none belongs is 400, and so is a repeated buyer_id', async () => {
    await refused('GET', `/v1/holds/${randomUUID()}?x=1`, {}, 400, 'INVALID_REQUEST');
    const twice = `/v1/holds/${randomUUID()}?buyer_id=a&buyer_id=b`;
    await refused('GET', twice, {}, 400, 'INVALID_REQUEST');
    await refused('GET', '/v1/products/a?x', {}, 400, 'INVALID_REQUEST');
  });
});

describe('what is no HTTP', () => {
  it.each([
    ['a broken request line', 'HELLO\r\n\r\n'],
    ['a header without a colon', 'GET /livez HTTP/1.1\r\nhost: x\r\nbroken\r\n\r\n'],
    [
      'two lengths',
      'POST /v1/holds HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab',
    ],
    ['64 KB of headers', `GET /livez HTTP/1.1\r\nhost: x\r\na: ${'x'.repeat(65_536)}\r\n\r\n`],
  ])('%s is 4xx, and the next request is answered', async (_, text) => {
    expect(await socket([text])).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect((await service.get('/livez')).status).toBe(200);
  });
});

/** Everything that comes back until the connection closes. */
function socket(parts: string[]): Promise<string> {
  return new Promise((resolve) => {
    const { hostname, port } = new URL(service.url());
    const got: Buffer[] = [];
    const client = connect(Number(port), hostname, () => {
      for (const part of parts) client.write(part);
    });
    client.on('data', (part) => got.push(part));
    client.on('error', () => {});
    client.on('close', () => resolve(Buffer.concat(got).toString()));
  });
}
