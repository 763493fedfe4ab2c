/**
 * The full form of the random histories: `npm run test:model -- --histories 3000 --postgres 18`.
 * TAHAN_SEED=... begins with that seed, --repeat plays it alone so many times: the seed decides what
 * the calls do, not how the machine lets them meet. --mutants says how soon each wrong form of the SQL
 * is found.
 */
import { parseArgs } from 'node:util';
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { migrate } from '../../db/migrate.js';
import { allPostgres, endServers } from '../setup/servers.js';
import { playHistories } from './histories.js';
import type { Result } from './histories.js';
import { applyMutant, mutants } from './mutants.js';

const { values } = parseArgs({
  options: {
    histories: { type: 'string', default: '10000' },
    postgres: { type: 'string', default: '18' },
    minutes: { type: 'string' },
    lanes: { type: 'string', default: '3' },
    mutants: { type: 'boolean', default: false },
    only: { type: 'string' },
    repeat: { type: 'boolean', default: false },
  },
});
process.env['TAHAN_TEST_POSTGRES'] = values.postgres;
const first = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000);
const count = Number(values.histories);
const until = values.minutes ? Date.now() + Number(values.minutes) * 60_000 : undefined;
/** Each takes up to 36 connections of the 200 that a test server has. */
const lanes = Math.min(5, Number(values.lanes));
/** A database is left after so many: tables that only grow would make the last histories the slowest. */
const batch = 500;

try {
  process.exitCode = (await (values.mutants ? huntMutants() : playAll())) ? 0 : 1;
} finally {
  await endServers();
}

async function playAll(): Promise<boolean> {
  const all: Result[] = [];
  for (let done = 0; done < count && !(until && Date.now() > until); done += batch) {
    const seeds = Array.from(
      { length: Math.min(batch, count - done) },
      (_, index) => first + (values.repeat ? 0 : done + index),
    );
    await withDatabase(async (url) => {
      const result = await playHistories(url, { seeds, lanes, until });
      all.push(result);
      print(result, seeds[0]!);
    });
  }
  const sum = (of: (result: Result) => number) =>
    all.reduce((total, result) => total + of(result), 0);
  const total = {
    postgres: values.postgres,
    firstSeed: first,
    histories: sum((r) => r.histories),
    calls: sum((r) => r.calls),
    claims: sum((r) => r.claims),
    refused: sum((r) => r.refused),
    conflicts: sum((r) => r.conflicts),
    paidWithin3msOfTheEnd: sum((r) => r.atTheEnd),
    waitedOverTheEnd: sum((r) => r.waited),
    failures: sum((r) => r.failures.length),
    seconds: Math.round(sum((r) => r.seconds)),
  };
  const outcomes: Record<string, number> = {};
  for (const result of all)
    for (const [name, times] of Object.entries(result.outcomes))
      outcomes[name] = (outcomes[name] ?? 0) + times;
  console.log(JSON.stringify(outcomes, Object.keys(outcomes).sort(), 1));
  console.log(
    JSON.stringify({ ...total, callsPerSecond: Math.round(total.calls / total.seconds) }),
  );
  const share = total.refused / total.claims;
  // A run that refuses nearly nobody, or nearly all, proves nothing.
  const proves = count < 20 || values.repeat || (share >= 0.2 && share <= 0.6);
  if (!proves) console.log(`${(share * 100).toFixed(1)} % refused: outside 20 to 60 %`);
  return proves && total.failures === 0 && total.conflicts === 0;
}

async function huntMutants(): Promise<boolean> {
  let all = true;
  for (const mutant of mutants.filter(
    ({ name, stepped }) => !stepped && (!values.only || name.includes(values.only)),
  )) {
    const seeds = Array.from({ length: count }, (_, index) => first + (values.repeat ? 0 : index));
    const result = await withDatabase(async (url) => {
      await applyMutant(url, mutant);
      return playHistories(url, { seeds, lanes, until, untilWrong: !values.repeat });
    });
    const [failure] = result.failures;
    all &&= failure !== undefined;
    const times = values.repeat ? `${result.failures.length} times in` : 'after';
    const said = failure
      ? `caught ${times} ${result.histories} histories (${result.seconds.toFixed(1)} s), seed ${failure.seed}: ${failure.violations[0]!.slice(0, 200)}`
      : `NOT caught in ${result.histories} histories (${result.seconds.toFixed(0)} s)`;
    console.log(`${mutant.name}: ${said}`);
  }
  return all;
}

function print(result: Result, seed: number): void {
  const share = ((100 * result.refused) / result.claims).toFixed(1);
  console.log(
    `Postgres ${values.postgres}, seeds from ${seed}: ${result.histories} histories, ${result.calls} calls, ${result.claims} claims, ${share} % refused, ${result.conflicts} conflicts, ${result.seconds.toFixed(1)} s, ${Math.round(result.calls / result.seconds)}/s`,
  );
  for (const { seed, violations } of result.failures.slice(0, 10)) {
    console.log(
      `FAILED: TAHAN_SEED=${seed} npm run test:model -- --repeat --histories 100 --postgres ${values.postgres}`,
    );
    for (const violation of violations.slice(0, 5)) console.log(`  ${violation}`);
  }
}

async function withDatabase<T>(work: (url: string) => Promise<T>): Promise<T> {
  const [server] = await allPostgres();
  if (!server) throw new Error(`There is no Postgres ${values.postgres} here.`);
  const name = `model_${process.pid}_${randomBytes(4).toString('hex')}`;
  const admin = async (text: string) => {
    const client = new pg.Client({ connectionString: server.url('postgres') });
    await client.connect();
    await client.query(text).finally(() => client.end());
  };
  await admin(`create database ${name}`);
  try {
    await migrate(server.url(name));
    return await work(server.url(name));
  } finally {
    await admin(`drop database ${name} with (force)`);
  }
}
