/**
 * The full form of the payments around the deadline: `npm run test:payments -- --payments 2000`.
 * TAHAN_SEED=... repeats a plan: what is paid, how, and when somebody is killed; not how the machine
 * lets them meet. The last line says what came out, as JSON.
 */
import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { migrate } from '../../db/migrate.js';
import { allPostgres, bundle, endServers, temporal } from '../setup/servers.js';
import { play, vacuous } from './play.js';

const { values } = parseArgs({
  options: {
    payments: { type: 'string', default: '2000' },
    kills: { type: 'string', default: '5' },
    minutes: { type: 'string', default: '15' },
    postgres: { type: 'string', default: '18' },
  },
});
process.env['TAHAN_TEST_POSTGRES'] = values.postgres;

try {
  process.exitCode = (await main()) ? 0 : 1;
} finally {
  await endServers();
}

async function main(): Promise<boolean> {
  const [[server], { address }, bundlePath] = await Promise.all([
    allPostgres(),
    temporal(),
    bundle(),
  ]);
  if (!server) throw new Error(`There is no Postgres ${values.postgres} here.`);
  const name = `payments_${randomBytes(4).toString('hex')}`;
  const admin = new pg.Client({ connectionString: server.url('postgres') });
  await admin.connect();
  await admin.query(`create database ${name}`).finally(() => admin.end());
  await migrate(server.url(name));
  const {
    wrong,
    book: _,
    ...played
  } = await play({
    databaseUrl: server.url(name),
    temporalAddress: address,
    bundlePath,
    payments: Number(values.payments),
    kills: Number(values.kills),
    seed: Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000),
    patienceMs: Number(values.minutes) * 60_000,
    say: (line) => console.error(line),
  });
  const nothing = vacuous(played);
  for (const sentence of wrong.slice(0, 20)) console.log(`WRONG: ${sentence}`);
  for (const sentence of nothing) console.log(`This run proves nothing: ${sentence}`);
  console.log(JSON.stringify({ ...played, wrong: wrong.length }));
  return wrong.length === 0 && nothing.length === 0;
}
