import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { openDatabase } from '../../db/database.js';
import { addKey, newKey } from '../../db/keys.js';
import { putBin } from '../../db/bin.js';
import { putProduct } from '../../db/product.js';
import { restock } from '../../db/restock.js';
import { root } from '../../cli/root.js';
import { emptyDatabase, freshDatabase } from '../setup/database.js';
import type { TestDatabase } from '../setup/database.js';

let database: TestDatabase;
let key: string;
const secret = `whsec_${randomBytes(32).toString('base64')}`;
const children: ChildProcess[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  key = newKey();
  const db = openDatabase({ url: database.url, takeAppRole: true });
  await addKey(db, 'shop', 'web', key);
  const by = { actor: 'test', reason: 'test' };
  await putProduct(db, 'A', {}, by);
  await putBin(db, { sku: 'A', code: 'b' }, by);
  await restock(db, { sku: 'A', bin: 'b', quantity: 1, requestId: 'a', reference: null, ...by });
  await db.close();
});

afterEach(() => {
  for (const child of children.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
});

afterAll(() => database.drop());

interface Started {
  child: ChildProcess;
  output: () => string;
  errors: () => string;
  exited: Promise<number | null>;
}

function start(
  file: string,
  env: Record<string, string | undefined>,
  args: string[] = [],
): Started {
  const child = spawn(process.execPath, [join(root, 'dist', file), ...args], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  children.push(child);
  const got = { out: '', err: '' };
  child.stdout.on('data', (part: Buffer) => (got.out += part.toString()));
  child.stderr.on('data', (part: Buffer) => (got.err += part.toString()));
  const exited = once(child, 'close').then(([code]) => code as number | null);
  return { child, output: () => got.out, errors: () => got.err, exited };
}

const good = () => ({
  DATABASE_URL: database.url,
  TEMPORAL_ADDRESS: inject('temporalAddress'),
  TAHAN_TASK_QUEUE_PREFIX: `t${randomUUID()}-`,
  TAHAN_WEBHOOK_SECRETS: secret,
  PORT: '0',
});

async function ready({ child, output, errors }: Started): Promise<string> {
  for (;;) {
    const line = output()
      .split('\n')
      .find((text) => text.includes('"ready":true'));
    if (line !== undefined) return (JSON.parse(line) as { url: string }).url;
    if (child.exitCode !== null) throw new Error(`ended: ${output()}${errors()}`);
    await new Promise((again) => setTimeout(again, 20));
  }
}

async function get(url: string): Promise<{ status: number; body: Record<string, unknown> }> {
  const answer = await fetch(url);
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

describe('the API as a process', () => {
  it('prints one ready line with its address, is ready, and ends with 0 on SIGTERM', async () => {
    const api = start('api/main.js', good());
    const url = await ready(api);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(await get(`${url}/livez`)).toEqual({ status: 200, body: { status: 'live' } });
    expect((await get(`${url}/readyz`)).body).toEqual({
      status: 'ready',
      postgres: 'ok',
      temporal: 'ok',
    });
    expect((await get(`${url}/openapi.json`)).body).toMatchObject({ openapi: '3.1.0' });
    api.child.kill('SIGTERM');
    expect(await api.exited).toBe(0);
    expect(api.errors()).toBe('');
  });

  it('without a webhook secret it refuses to start, with 2 and one sentence', async () => {
    const api = start('api/main.js', { ...good(), TAHAN_WEBHOOK_SECRETS: undefined });
    expect(await api.exited).toBe(2);
    expect(api.errors()).toBe(
      'The API can not start:\nTAHAN_WEBHOOK_SECRETS is missing: without it anybody could confirm a hold\n',
    );
    expect(api.output()).toBe('');
  });

  it('starts while Postgres and Temporal are away, says so, and does not end for it', async () => {
    const api = start('api/main.js', {
      ...good(),
      DATABASE_URL: 'postgres://nobody@127.0.0.1:9/none',
      TEMPORAL_ADDRESS: '127.0.0.1:9',
    });
    const url = await ready(api);
    expect((await get(`${url}/livez`)).status).toBe(200);
    expect(await get(`${url}/readyz`)).toEqual({
      status: 503,
      body: { status: 'not_ready', postgres: 'away', temporal: 'away' },
    });
    expect(api.child.exitCode).toBeNull();
    api.child.kill('SIGINT');
    expect(await api.exited).toBe(0);
  });

  it('ends on SIGTERM although its parent keeps the pipe open', async () => {
    const api = start('api/main.js', { ...good(), TAHAN_EXIT_WITH_PARENT: '1' });
    await ready(api);
    api.child.kill('SIGTERM');
    expect(await api.exited).toBe(0);
  });

  it('a database that has no tables yet ends it with 1 and the command that makes them', async () => {
    const empty = await emptyDatabase();
    const api = start('api/main.js', { ...good(), DATABASE_URL: empty.url });
    const code = await api.exited;
    await empty.drop();
    expect([code, api.output()]).toEqual([1, expect.stringContaining('npm run migrate')]);
  });

  it('ends when its parent closes the pipe, if TAHAN_EXIT_WITH_PARENT is set', async () => {
    const api = start('api/main.js', { ...good(), TAHAN_EXIT_WITH_PARENT: '1' });
    await ready(api);
    api.child.stdin!.end();
    expect(await api.exited).toBe(0);
  });

  it('on SIGTERM a running checkout still gets its answer, and a new connection is refused', async () => {
    const api = start('api/main.js', good());
    const url = await ready(api);
    // No worker runs on its queue: the checkout takes 3.5 s.
    const checkout = fetch(`${url}/v1/holds`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'idempotency-key': 'k',
      },
      body: JSON.stringify({ buyer_id: 'b', lines: [{ sku: 'A', quantity: 1 }] }),
    });
    await arrived(api);
    api.child.kill('SIGTERM');
    const refused = async () =>
      fetch(`${url}/livez`).then(
        () => false,
        () => true,
      );
    while (!(await refused())) await new Promise((again) => setTimeout(again, 20));
    const answer = await checkout;
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ code: 'CHECKOUT_TIMED_OUT' });
    expect(await api.exited).toBe(0);
  });
});

describe('npm run keys', () => {
  const keys = async (...args: string[]) => {
    const run = start('cli/keys.js', { DATABASE_URL: database.url }, args);
    return { code: await run.exited, output: run.output(), errors: run.errors() };
  };

  it('create prints a key once, which works; list shows it without the key; revoke ends it', async () => {
    const created = await keys('create', 'operator', 'ann of the warehouse');
    expect(created.code).toBe(0);
    const [made] = created.output.split('\n');
    expect(made).toMatch(/^tahan_[\w-]{43}$/);
    const api = start('api/main.js', good());
    const url = await ready(api);
    const read = () =>
      fetch(`${url}/v1/holds`, { headers: { authorization: `Bearer ${made}` } }).then(
        ({ status }) => status,
      );
    expect(await read()).toBe(200);
    const listed = await keys('list');
    expect(listed.output).toContain('ann of the warehouse');
    expect(listed.output).not.toContain(made);
    const line = listed.output.split('\n').find((text) => text.includes('ann of'))!;
    expect((await keys('revoke', line.split('  ')[0]!)).code).toBe(0);
    expect((await keys('list')).output).toMatch(/revoked .*ann of the warehouse/);
    while ((await read()) !== 401) await new Promise((again) => setTimeout(again, 50));
    const again = await keys('revoke', line.split('  ')[0]!);
    expect([again.code, again.errors]).toEqual([1, expect.stringContaining('No valid key')]);
  });

  it('an unknown role, an empty name and something that is no id are refused with a sentence', async () => {
    for (const args of [
      ['create', 'admin', 'x'],
      ['create', 'shop', ' '],
      ['create', 'shop', 'a\nb'],
      ['revoke', '1'],
      ['create', 'shop'],
    ]) {
      const { code, output, errors } = await keys(...args);
      expect(code, args.join(' ')).not.toBe(0);
      expect(output).toBe('');
      expect(errors).toMatch(/^error: /);
    }
  });
});

/** The key was looked up: the request is past the door. Its answer is the only line that follows. */
async function arrived({ child }: Started): Promise<void> {
  const db = openDatabase({ url: database.url, takeAppRole: false, connections: { reads: 1 } });
  try {
    for (;;) {
      const rows = await db.reads.rows<{ count: number }>({
        text: `select count(*)::int as count from pg_stat_activity
               where datname = current_database() and application_name = 'tahan api'
                 and position('read_checkout' in query) + position('show_hold' in query) > 0`,
        values: [],
      });
      if (rows[0]!.count > 0) return;
      if (child.exitCode !== null) throw new Error('the API has ended');
      await new Promise((again) => setTimeout(again, 20));
    }
  } finally {
    await db.close();
  }
}
