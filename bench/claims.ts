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
    ours('one bin, 4 connections', { bins: 1, connections: 4 }),
    ours(batched, { bins: 1, connections: 2, batch: true }),
    ours('one bin, 16 connections', { bins: 1, connections: 16 }),
    ours('ten bins, 16 connections', { bins: 10, connections: 16 }),
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

function ours(
  name: string,
  { bins, connections, batch = false }: { bins: number; connections: number; batch?: boolean },
): Arm {
  return {
    name,
    run: (seconds) =>
      onFreshDatabase(async (url) => {
        const db = openDatabase({ url, takeAppRole: true, connections: { claims: connections } });
        try {
          await stock(db, bins);
          const calls = await closedLoop(connections, seconds, () =>
            batch ? manyClaims(db) : oneClaim(db),
          );
          const rate = batch ? calls * perBatch : calls;
          return { rate, violations: Object.keys(await audit(url)) };
        } finally {
          await db.close();
        }
      }),
  };
}

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
          const folder = mkdtempSync(join(tmpdir(), 'tahan-bench-'));
          const script = join(folder, 'claim.sql');
          writeFileSync(
            script,
            `\\set buyer random(1, 1000000000)
begin;
update product set held = held + 1 where id = 1 and total - held - sold >= 1;
insert into hold values (gen_random_uuid(), 1, :buyer, 'HELD', now() + interval '10 minutes');
commit;
`,
          );
          try {
            const { stdout } = await promisify(execFile)(pgbench, [
              ...['--no-vacuum', '--client=4', '--jobs=2', '--protocol=prepared'],
              ...[`--time=${seconds}`, `--file=${script}`, url],
            ]);
            const rate = Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
            if (!(rate > 0)) throw new Error(`pgbench said: ${stdout}`);
            const [count] = await sql<{ held: number; holds: number }>(
              'select held, (select count(*)::int from hold) as holds from product',
            );
            const same = count?.held === count?.holds;
            return { rate, violations: same ? [] : [`held ${count?.held}, holds ${count?.holds}`] };
          } finally {
            rmSync(folder, { recursive: true });
          }
        },
        { migrated: false },
      ),
  };
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
