import { spawnSync } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addKey, newKey } from '../../db/keys.js';
import { audit } from '../db/audit.js';
import { openShop } from '../db/shop.js';
import type { Shop } from '../db/shop.js';
import { killProcess, startProcess } from '../workflows/process.js';
import type { OwnProcess } from '../workflows/process.js';
import type { Availability, Hold, Movement, Page } from './service.js';

/** Ten seconds before the clocks change there, forward and back. */
const changes = {
  'America/Los_Angeles': ['2027-03-14T09:59:50Z', '2026-11-01T08:59:50Z'],
  'Europe/Berlin': ['2027-03-28T00:59:50Z', '2026-10-25T00:59:50Z'],
};

/** Where API and worker are, where the database is, and whose clocks change. */
const places: [string, string, keyof typeof changes][] = [
  ['Australia/Brisbane', 'America/Los_Angeles', 'America/Los_Angeles'],
  ['America/Los_Angeles', 'Australia/Brisbane', 'America/Los_Angeles'],
  ['Europe/Berlin', 'Europe/Berlin', 'Europe/Berlin'],
];

describe.each(places)('B10: API and worker in %s, the database in %s', (theirs, ours, changing) => {
  let shop: Shop;
  let sku: string;
  const running: (OwnProcess & { url: string })[] = [];
  const keys = { shop: newKey(), operator: newKey() };

  beforeAll(async () => {
    shop = await openShop();
    await shop.query(`do $$ begin
      execute format('alter database %I set timezone = ''${ours}''', current_database());
      execute format('alter role %I in database %I set timezone = ''${ours}''', current_user, current_database());
    end $$`);
    for (const role of ['shop', 'operator'] as const) await addKey(shop.db, role, role, keys[role]);
    const env = {
      TZ: theirs,
      DATABASE_URL: shop.url,
      TAHAN_TASK_QUEUE_PREFIX: `z${randomUUID().slice(0, 8)}-`,
      TAHAN_WEBHOOK_SECRETS: `whsec_${randomBytes(32).toString('base64')}`,
    };
    const both = ['api', 'worker'] as const;
    running.push(...(await Promise.all(both.map((file) => startProcess(file, env)))));
    // The worker's first claim loads the workflows.
    await call(201, 'POST', '/v1/holds', { sku: await shop.product([1]) });
  });
  afterAll(async () => {
    await Promise.all(running.map(killProcess));
    await shop.close();
  });

  /** A call of the API process; with a sku it claims one unit, and repeats the key as a shop does. */
  async function call<T = Hold>(
    status: number,
    method: string,
    path: string,
    { sku, ...body }: Record<string, unknown> = {},
  ): Promise<T> {
    const claim =
      sku === undefined ? {} : { buyer_id: randomUUID(), lines: [{ sku, quantity: 1 }] };
    const headers = {
      authorization: `Bearer ${path.includes('?') ? keys.operator : keys.shop}`,
      ...(method === 'POST' && {
        'content-type': 'application/json',
        'idempotency-key': randomUUID(),
      }),
    };
    const payload = method === 'POST' ? { body: JSON.stringify({ ...claim, ...body }) } : {};
    for (let tries = 1; ; tries += 1) {
      const answer = await fetch(`${running[0]!.url}${path}`, { method, headers, ...payload });
      const text = await answer.text();
      const again = answer.status === 503 || answer.status === 202;
      if (again && tries < 20 && status !== answer.status) continue;
      // A repeated key is answered 200 by what the first try has taken.
      const got = answer.status === 200 && tries > 1 && status === 201 ? 201 : answer.status;
      expect(got, text).toBe(status);
      return JSON.parse(text) as T;
    }
  }

  /** Sets the clock of Postgres to this instant; from there it goes on. */
  const setClock = (at: number) => shop.shiftClock(at - Date.now());
  const list = <T>(path: string, query: Record<string, string>) =>
    call<Page<T>>(200, 'GET', `${path}?${new URLSearchParams({ sku, ...query }).toString()}`);

  it('the zones are really set: in a process, and in a session of the database', async () => {
    const script = 'Intl.DateTimeFormat().resolvedOptions().timeZone + new Date(0).getHours()';
    const { stdout } = spawnSync(process.execPath, ['-p', script], { env: { TZ: theirs } });
    const hours = { 'Australia/Brisbane': 10, 'America/Los_Angeles': 16, 'Europe/Berlin': 1 };
    expect(String(stdout).trim()).toBe(`${theirs}${hours[theirs as keyof typeof hours]}`);
    const session = await shop.session();
    const { rows } = await session.query(`show timezone`);
    expect(rows).toEqual([{ TimeZone: ours }]);
  });

  it.each(changes[changing])(
    'B10: at %s, as the clocks change: a hold lasts 600 s exactly, is held at 595 s, 300 s more by an extension, and over by 905 s',
    async (moment) => {
      sku = await shop.product([1]);
      const began = Date.parse(moment);
      await setClock(began);
      const hold = await call(201, 'POST', '/v1/holds', { sku });
      for (const text of [hold.created_at, hold.expires_at!, hold.server_time])
        expect(text).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      const created = Date.parse(hold.created_at);
      expect(created - began).toBeGreaterThanOrEqual(0);
      expect(created - began).toBeLessThan(60_000);
      expect(Date.parse(hold.expires_at!) - created).toBe(600_000);

      await setClock(created + 595_000);
      const path = `/v1/holds/${hold.id}`;
      expect(await call(200, 'GET', path)).toMatchObject({ status: 'HELD' });
      await call(409, 'POST', '/v1/holds', { sku });
      const extended = await call(200, 'POST', `${path}/extend`, { seconds: 300 });
      expect(Date.parse(extended.expires_at!) - created).toBe(900_000);
      await setClock(created + 895_000);
      expect(await call(200, 'GET', path)).toMatchObject({ status: 'HELD' });
      await call(409, 'POST', '/v1/holds', { sku });

      await setClock(created + 900_001);
      const shown = await call<Availability>(200, 'GET', `/v1/products/${sku}/availability`);
      expect(shown).toMatchObject({ available: 1, held: 0 });
      const next = await call(201, 'POST', '/v1/holds', { sku });
      const { status, closed_at: closed } = await call(200, 'GET', path);
      expect(status).toBe('EXPIRED');
      expect(Date.parse(closed!) - created).toBeGreaterThanOrEqual(900_000);
      expect(Date.parse(next.expires_at!) - Date.parse(next.created_at)).toBe(600_000);
      await filters([hold.id, next.id], Date.parse(extended.expires_at!), created);
      expect(await audit(shop.url)).toEqual({});
    },
  );

  /** Lists by time, page by page, with the same instants written in three zones. */
  async function filters([first, second]: string[], end: number, created: number): Promise<void> {
    const ids = ({ items }: Page<Hold>) => items.map(({ id }) => id);
    for (const hours of [0, 10, -8]) {
      const at = (ms: number) =>
        new Date(ms + hours * 3_600_000)
          .toISOString()
          .replace('Z', `${hours < 0 ? '-' : '+'}${String(Math.abs(hours)).padStart(2, '0')}:00`);
      expect(ids(await list<Hold>('/v1/holds', { expires_before: at(end) }))).toEqual([]);
      expect(ids(await list<Hold>('/v1/holds', { expires_before: at(end + 1) }))).toEqual([first]);
      const types = async (from: number, to: number) =>
        (await list<Movement>('/v1/movements', { from: at(from), to: at(to) })).items.map(
          ({ type }) => type,
        );
      expect(await types(created, created + 1)).toEqual(['reserve']);
      expect(await types(created + 1, created + 900_000)).toEqual([]);
      expect(await types(created + 1, created + 990_000)).toEqual([
        'reserve',
        'release_reservation',
      ]);
    }
    const page = await list<Hold>('/v1/holds', { limit: '1' });
    expect(ids(page)).toEqual([second]);
    const refused = await list<Hold>('/v1/holds', { limit: '10', cursor: page.next_cursor! });
    expect(ids(refused).at(-1)).toBe(first);
  }

  it('B10: a hold of 2 s is given back by its timer, on time by the clock of Postgres', async () => {
    await shop.shiftClock(0);
    sku = await shop.product([1]);
    const { id } = await call(201, 'POST', '/v1/holds', { sku, hold_seconds: 2 });
    await expect
      .poll(async () => (await call(200, 'GET', `/v1/holds/${id}`)).status, { timeout: 20_000 })
      .toBe('EXPIRED');
    const ended = await call(200, 'GET', `/v1/holds/${id}`);
    expect(Date.parse(ended.expires_at!) - Date.parse(ended.created_at)).toBe(2000);
    const late = Date.parse(ended.closed_at!) - Date.parse(ended.expires_at!);
    expect(late).toBeGreaterThanOrEqual(0);
    expect(late).toBeLessThan(11_000);
  });
});
