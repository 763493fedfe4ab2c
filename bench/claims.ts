import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { putBin } from '../db/bin.js';
import { claim } from '../db/claim.js';
import type { ClaimRequest } from '../db/claim.js';
import { claimBatch } from '../db/claimBatch.js';
import { openDatabase } from '../db/database.js';
import type { Database } from '../db/database.js';
import { putProduct } from '../db/product.js';
import { restock } from '../db/restock.js';
import { audit } from '../test/db/audit.js';
import { onFreshDatabase } from './database.js';
import { atLeast, closedLoop, interleave } from './measure.js';
import type { Arm, Options, Run } from './measure.js';

const sku = 'HOT';
const perBatch = 50;
const batched = `one bin, batches of ${perBatch}`;

/**
 * The database layer alone: claims of one unit of one product, each by another buyer, against the
 * claim as two bare statements in one transaction (a conditional UPDATE and an INSERT, by pgbench).
 */
export async function claims(options: Options): Promise<Run> {
  const pgbench = findPgbench();
  const arms: Arm[] = [
    ...(pgbench === undefined ? [] : [bareStatements(pgbench)]),
    ours('one bin, 4 connections', { bins: 1, connections: 4 }, pgbench),
    ours(batched, { bins: 1, connections: 2, batch: true }, pgbench),
    ours('one bin, 16 connections', { bins: 1, connections: 16 }, pgbench),
    ours('ten bins, 16 connections', { bins: 10, connections: 16 }, pgbench),
  ];
  const measured = await interleave(arms, options);
  const { samples } = measured;
  const judge = (least: number, mine: string, baseline: string, metric: string) =>
    atLeast(least, {
      bench: 'claims',
      metric,
      ours: samples[mine]!,
      baseline: samples[baseline]!,
      baselineName: baseline,
    });
  return {
    bench: 'claims',
    settings: { rounds: options.rounds, seconds: options.seconds },
    ...measured,
    judged: [
      ...(pgbench === undefined
        ? []
        : [judge(5, batched, 'pgbench, 4 connections', 'claims a second, one bin')]),
      judge(
        2,
        'ten bins, 16 connections',
        'one bin, 16 connections',
        'claims a second, ten bins with spread',
      ),
    ],
    left_out:
      pgbench === undefined
        ? ['pgbench: not on the PATH, and not in /usr/lib/postgresql (Debian: postgresql)']
        : [],
  };
}

interface Shape {
  bins: number;
  connections: number;
  batch?: boolean;
}

/** With pgbench as the client where it is: like its baseline, without what Node needs for each call. */
function ours(name: string, shape: Shape, pgbench: string | undefined): Arm {
  return {
    name,
    run: (seconds) =>
      onFreshDatabase(async (url, sql) => {
        const claims = { claims: shape.connections };
        const db = openDatabase({ url, takeAppRole: true, connections: claims });
        try {
          await stock(db, shape.bins);
          if (pgbench === undefined)
            return { rate: await byNode(db, shape, seconds), violations: await broken(url) };
          const script = shape.batch ? batchOfClaims : singleClaim;
          const calls = await playScript(pgbench, url, script, shape.connections, seconds, {
            PGOPTIONS: '-c role=tahan_app -c timezone=UTC',
          });
          const [held] = await sql<{ holds: number }>(
            `select count(*)::int as holds from tahan.holds where status = 'HELD'`,
          );
          const rate = shape.batch ? calls.rate * perBatch : calls.rate;
          // A claim that was not granted would be a cheap one.
          const granted = calls.done * (shape.batch ? perBatch : 1);
          const all = held!.holds >= granted;
          return {
            rate,
            violations: [
              ...(await broken(url)),
              ...(all ? [] : [`${granted} claimed, ${held!.holds} held`]),
            ],
          };
        } finally {
          await db.close();
        }
      }),
  };
}

async function broken(url: string): Promise<string[]> {
  return Object.keys(await audit(url));
}

async function byNode(
  db: Database,
  { connections, batch }: Shape,
  seconds: number,
): Promise<number> {
  const calls = await closedLoop(connections, seconds, () =>
    batch ? manyClaims(db) : oneClaim(db),
  );
  return batch ? calls * perBatch : calls;
}

const singleClaim = `select tahan.claim(gen_random_uuid(), gen_random_uuid()::text, 'bench', 'bench',
  '[{"sku":"${sku}","quantity":1}]', null, clock_timestamp() + interval '60 s', false, '{}', 4000);
`;

const batchOfClaims = `select tahan.claim_batch(
  array_agg(gen_random_uuid()), array_agg(gen_random_uuid()::text), array_agg('bench'::text), array_agg('bench'::text),
  array_agg('${sku}'::text), array_agg(1), array_agg(null::int),
  array_agg(clock_timestamp() + interval '60 s'), array_agg(false), jsonb_agg('{}'::jsonb), 4000)
from generate_series(1, ${perBatch});
`;

async function stock(db: Database, bins: number): Promise<void> {
  const by = { actor: 'bench', reason: 'bench' };
  await putProduct(db, sku, { allocation: bins === 1 ? 'in_order' : 'spread' }, by);
  for (let bin = 1; bin <= bins; bin += 1) {
    const code = `b${bin}`;
    await putBin(db, { sku, code }, by);
    const quantity = 10_000_000 / bins;
    const change = { sku, bin: code, quantity, requestId: 'stock', reference: null, ...by };
    await restock(db, change);
  }
}

async function oneClaim(db: Database): Promise<void> {
  const { outcome } = await claim(db, request());
  if (outcome !== 'HELD') throw new Error(`a claim answered ${outcome}`);
}

async function manyClaims(db: Database): Promise<void> {
  const answers = await claimBatch(db, Array.from({ length: perBatch }, request));
  const wrong = answers.find(({ outcome }) => outcome !== 'HELD');
  if (wrong !== undefined) throw new Error(`a claim answered ${wrong.outcome}`);
}

function request(): ClaimRequest {
  return {
    holdId: randomUUID(),
    buyerId: randomUUID(),
    idempotencyKey: 'bench',
    requestHash: 'bench',
    lines: [{ sku, quantity: 1 }],
    holdSeconds: null,
    claimDeadline: new Date(Date.now() + 60_000).toISOString(),
    order: false,
    metadata: {},
  };
}

/** The counts on one row, changed if enough is left, and a row for the hold: no engine does less. */
function bareStatements(pgbench: string): Arm {
  return {
    name: 'pgbench, 4 connections',
    run: (seconds) =>
      onFreshDatabase(
        async (url, sql) => {
          await sql(`
            create table product (id int primary key, total int, held int, sold int);
            insert into product values (1, 100000000, 0, 0);
            create table hold (
              id uuid primary key, product_id int, buyer bigint, status text, expires_at timestamptz)`);
          const { rate } = await playScript(pgbench, url, bareClaim, 4, seconds);
          const [count] = await sql<{ held: number; holds: number }>(
            'select held, (select count(*)::int from hold) as holds from product',
          );
          const same = count?.held === count?.holds;
          return { rate, violations: same ? [] : [`held ${count?.held}, holds ${count?.holds}`] };
        },
        { migrated: false },
      ),
  };
}

const bareClaim = `\\set buyer random(1, 1000000000)
begin;
update product set held = held + 1 where id = 1 and total - held - sold >= 1;
insert into hold values (gen_random_uuid(), 1, :buyer, 'HELD', now() + interval '10 minutes');
commit;
`;

/** Scripts a second, and how many in all. */
async function playScript(
  pgbench: string,
  url: string,
  script: string,
  connections: number,
  seconds: number,
  environment: Record<string, string> = {},
): Promise<{ rate: number; done: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'tahan-bench-'));
  const file = join(folder, 'claim.sql');
  writeFileSync(file, script);
  try {
    const { stdout } = await promisify(execFile)(
      pgbench,
      [
        ...['--no-vacuum', `--client=${connections}`, '--jobs=2', '--protocol=prepared'],
        ...[`--time=${seconds}`, `--file=${file}`, url],
      ],
      { env: { ...process.env, ...environment } },
    );
    const rate = Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
    const done = Number(/actually processed: (\d+)/.exec(stdout)?.[1]);
    if (!(rate > 0 && done > 0)) throw new Error(`pgbench said: ${stdout}`);
    return { rate, done };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function findPgbench(): string | undefined {
  const installed = '/usr/lib/postgresql';
  const versions = existsSync(installed) ? readdirSync(installed).sort().reverse() : [];
  return [
    ...(process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== ''),
    ...versions.map((version) => join(installed, version, 'bin')),
  ]
    .map((folder) => join(folder, 'pgbench'))
    .find((file) => existsSync(file));
}
