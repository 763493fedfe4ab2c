import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { claim } from '../../db/claim.js';
import { conflicts, openDatabase } from '../../db/database.js';
import type { Database, DatabaseOptions } from '../../db/database.js';
import { readAvailability } from '../../db/readAvailability.js';
import { readHold } from '../../db/readHold.js';
import { describeNewestPostgres, isThorough } from '../setup/database.js';
import { atOnce, faultOf, otherOnBins, whenWaiting } from './rivals.js';
import { sharedShop } from './shop.js';
import { network } from './network.js';

describeNewestPostgres('the way to Postgres', (version) => {
  const shop = sharedShop(version);
  const ends: (() => unknown)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
  function open(options: Partial<DatabaseOptions>): Database {
    const db = openDatabase({ url: shop.url, takeAppRole: true, ...options });
    ends.push(() => db.close());
    return db;
  }
  async function openNetwork() {
    const wire = await network(shop.url);
    ends.push(() => wire.close());
    return wire;
  }
  async function timed<T>(work: Promise<T>): Promise<{ answer: T; ms: number }> {
    const started = performance.now();
    return { answer: await work, ms: performance.now() - started };
  }

  it('F42: 100 backends killed under load end no process: each call answers or is DATABASE_UNAVAILABLE, and the next ones work', async () => {
    const db = open({ applicationName: 'victim' });
    const sku = await shop.product([1000], { perBuyerLimit: null });
    const seen = { answered: 0, DATABASE_UNAVAILABLE: 0 };
    let killed = 0;
    const load = atOnce(6, async (index) => {
      while (killed < 100) {
        const work =
          index % 2 ? readAvailability(db, [sku]) : claim(db, await shop.request({ [sku]: 1 }));
        const fault = await faultOf(work);
        if (fault.startsWith('answered')) seen.answered += 1;
        else if (fault === 'DATABASE_UNAVAILABLE') seen.DATABASE_UNAVAILABLE += 1;
        else throw new Error(fault);
      }
    });
    // One at a time, each after an answer, so that there is something to interrupt.
    for (let answered = 0; killed < 100; answered = seen.answered) {
      while (seen.answered === answered) await pause(1);
      const victims = await shop.query(
        `select pg_terminate_backend(pid) from
           (select pid from pg_stat_activity where datname = current_database() and application_name = 'victim'
            order by state = 'active' desc, random() limit 1) v`,
      );
      killed += victims.length;
    }
    await load;
    expect(seen.answered).toBeGreaterThanOrEqual(100);
    expect(seen.DATABASE_UNAVAILABLE).toBeGreaterThan(0);
    for (let i = 0; i < 20; i += 1) {
      expect(await faultOf(readAvailability(db, [sku]))).toMatch('answered');
    }
  });

  it('F42: the call after one whose backend was killed gets another connection and works', async () => {
    const db = open({ connections: { reads: 1 }, applicationName: 'only one' });
    for (let round = 1; round <= 5; round += 1) {
      const sleeping = faultOf(db.reads.rows({ text: 'select pg_sleep(1)' }));
      const kill = `select pg_terminate_backend(pid) as killed from pg_stat_activity
        where application_name = 'only one' and query like '%pg_sleep%'`;
      await expect.poll(() => shop.query(kill)).toEqual([{ killed: true }]);
      expect(await sleeping).toBe('DATABASE_UNAVAILABLE');
      expect(await faultOf(readAvailability(db, ['x']))).toBe('answered []');
    }
  });

  it('F40: a Postgres that refuses the connection is DATABASE_UNAVAILABLE at once', async () => {
    const nobody = createServer();
    await new Promise<void>((resolve) => nobody.listen(0, '127.0.0.1', resolve));
    const url = new URL(shop.url);
    [url.hostname, url.port] = ['127.0.0.1', String((nobody.address() as AddressInfo).port)];
    await new Promise((resolve) => nobody.close(resolve));
    // Long before the time in which a connection may come, however busy the machine.
    const db = open({ url: url.href, connectWithinMs: 20_000 });
    const { answer, ms } = await timed(faultOf(readAvailability(db, ['x'])));
    expect(answer).toBe('DATABASE_UNAVAILABLE');
    expect(ms).toBeLessThan(5_000);
  });

  it('F40: a Postgres that takes the connection and says nothing is DATABASE_UNAVAILABLE after connectWithinMs', async () => {
    const wire = await openNetwork();
    wire.lost.back = true;
    const db = open({ url: wire.url, connectWithinMs: 300 });
    const { answer, ms } = await timed(faultOf(readAvailability(db, ['x'])));
    expect(answer).toBe('DATABASE_UNAVAILABLE');
    expect(ms).toBeGreaterThan(250);
    expect(ms).toBeLessThan(5_000); // without the timer, never
    wire.lost.back = false;
    expect(await faultOf(readAvailability(db, ['x']))).toBe('answered []');
  });

  // The pool's own patience is the same whoever answers.
  const itself = it.runIf(isThorough(version));

  itself(
    'F43: when the network dies under a call, it ends after the statement timeout and 2 s, or after withinMs, and the next call gets a new connection',
    async () => {
      const wire = await openNetwork();
      const db = open({ url: wire.url, connections: { reads: 2 } });
      await atOnce(2, () => readAvailability(db, ['x']));
      wire.lost.there = true;
      const [asked, unasked] = await Promise.all([
        timed(faultOf(readAvailability(db, ['x'], 500))),
        timed(faultOf(readAvailability(db, ['x']))),
      ]);
      expect([asked.answer, unasked.answer]).toEqual(Array(2).fill('DATABASE_UNAVAILABLE'));
      expect(asked.ms).toBeGreaterThan(450);
      expect(asked.ms).toBeLessThan(3_000); // of the 3.5 s that the other one takes
      expect(unasked.ms).toBeGreaterThan(3_400);
      expect(unasked.ms).toBeLessThan(8_000); // without the timer, never
      wire.lost.there = false;
      expect(await faultOf(readAvailability(db, ['x']))).toBe('answered []');
    },
  );

  it('F1: when the answer of a claim is lost after its commit, the repeat finds the hold and takes no second unit', async () => {
    const wire = await openNetwork();
    const db = open({ url: wire.url });
    const sku = await shop.product([5]);
    const request = await shop.request({ [sku]: 1 });
    await claim(db, await shop.request({ [sku]: 1 }));
    wire.lost.back = true;
    const lost = faultOf(claim(db, request));
    await expect.poll(() => readHold(shop.db, request.holdId)).not.toBeNull();
    wire.close();
    expect(await lost).toBe('DATABASE_UNAVAILABLE');
    expect(await claim(shop.db, request)).toMatchObject({ outcome: 'ALREADY', status: 'HELD' });
  });

  it('F40: when all connections are busy, a call is DATABASE_UNAVAILABLE within connectWithinMs, and works again when one is free', async () => {
    const db = open({ connections: { claims: 2 }, connectWithinMs: 300 });
    const sku = await shop.product([9]);
    const blocker = await otherOnBins(shop, sku);
    const requests = await atOnce(3, () => shop.request({ [sku]: 1 }));
    const busy = requests.slice(0, 2).map((request) => claim(db, request));
    await whenWaiting(shop, 'tahan.claim', 2);
    const { answer, ms } = await timed(faultOf(claim(db, requests[2]!)));
    expect(answer).toBe('DATABASE_UNAVAILABLE');
    expect(ms).toBeGreaterThan(250);
    expect(ms).toBeLessThan(3_000); // the others keep theirs for 4 s
    await blocker.rollback();
    expect((await Promise.all(busy)).map(({ outcome }) => outcome)).toEqual(['HELD', 'HELD']);
    expect((await claim(db, requests[2]!)).outcome).toBe('HELD');
  });

  itself(
    'F41: 1,000 calls that got no connection in time, by connectWithinMs or by withinMs, leave none behind',
    async () => {
      // The second kind gives up while its connection is still on the way, and gets it after all.
      for (const [connectWithinMs, withinMs] of [
        [200, undefined],
        [6_000, 100],
      ] as const) {
        const applicationName = `patient ${connectWithinMs}`;
        const db = open({ connections: { reads: 2 }, connectWithinMs, applicationName });
        const seen = (text: string) =>
          shop.query(
            `select count(*)::int as count from pg_stat_activity where application_name = $1 and query like $2`,
            [applicationName, text],
          );
        const busy = atOnce(2, () => db.reads.rows({ text: 'select pg_sleep(1)' }));
        await expect.poll(() => seen('%pg_sleep%')).toEqual([{ count: 2 }]);
        const faults = await atOnce(500, () => faultOf(readAvailability(db, ['x'], withinMs)));
        expect(new Set(faults)).toEqual(new Set(['DATABASE_UNAVAILABLE']));
        await busy;
        // As many at once as there are connections: 200 ms are not to be a race.
        for (let round = 0; round < 10; round += 1) {
          const answers = await atOnce(2, () => faultOf(readAvailability(db, ['x'])));
          expect(answers).toEqual(Array(2).fill('answered []'));
        }
        expect(await seen('%')).toEqual([{ count: 2 }]);
      }
    },
  );

  it('R25: a statement that runs too long is stopped on the server, as DATABASE_UNAVAILABLE, and its connection is used again', async () => {
    const db = open({ connections: { reads: 1 } });
    const pid = async () =>
      (await db.reads.rows<{ pid: number }>({ text: 'select pg_backend_pid() as pid' }))[0]?.pid;
    const before = await pid();
    const { answer, ms } = await timed(faultOf(db.reads.rows({ text: 'select pg_sleep(9)' })));
    expect(answer).toBe('DATABASE_UNAVAILABLE');
    expect(ms).toBeGreaterThan(1_400);
    expect(ms).toBeLessThan(6_000); // of 9 s
    expect(await pid()).toBe(before);
  });

  it('a call that breaks a rule is thrown as it came: a defect is no fault, and costs no connection', async () => {
    const db = open({ connections: { reads: 1 } });
    expect(await faultOf(db.reads.rows({ text: 'select 1/0' }))).toMatch('division by zero');
    expect(await faultOf(db.reads.rows({ text: 'delete from tahan.holds' }))).toMatch(
      'permission denied',
    );
    const [settings] = await db.reads.rows({
      text: `select current_user as role, current_setting('transaction_isolation') as isolation,
        current_setting('timezone') as zone, current_setting('idle_in_transaction_session_timeout') as idle`,
    });
    expect(settings).toEqual({
      role: 'tahan_app',
      isolation: 'read committed',
      zone: 'UTC',
      idle: '10s',
    });
  });

  it('a deadlock or a serialization failure is repeated three times and counted; a fourth is DATABASE_UNAVAILABLE', async () => {
    await shop.query(
      `create sequence tahan.tries;
       create function tahan.conflicting(p_times int, p_code text) returns int language plpgsql as $$
         begin
           if nextval('tahan.tries') <= p_times then raise exception 'conflict' using errcode = p_code; end if;
           return 1;
         end $$;
       grant execute on function tahan.conflicting to tahan_app;
       grant usage on sequence tahan.tries to tahan_app`,
    );
    const conflicting = async (times: number, code: string) => {
      await shop.query('alter sequence tahan.tries restart');
      const before = conflicts.repeated;
      const text = 'select tahan.conflicting($1, $2) as answer';
      const answer = await faultOf(shop.db.changes.answer({ text, values: [times, code] }));
      return [answer, conflicts.repeated - before];
    };
    expect(await conflicting(3, '40P01')).toEqual(['answered 1', 3]);
    expect(await conflicting(1, '40001')).toEqual(['answered 1', 1]);
    expect(await conflicting(4, '40P01')).toEqual(['DATABASE_UNAVAILABLE', 3]);
  });
});
