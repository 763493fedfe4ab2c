/**
 * Speed, as ratios to a baseline of the same run: `npm run bench`, `npm run bench -- claims --json`.
 * Ends with 1 when an invariant was violated, or a goal was missed.
 */
import { arch, cpus, totalmem } from 'node:os';
import { parseArgs } from 'node:util';
import { claims } from './claims.js';
import { describePostgres, stopPostgres } from './database.js';
import type { Judged, Run } from './measure.js';
import { reads } from './reads.js';

const benches = { claims, reads };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
  },
});
const wanted = positionals.length > 0 ? positionals : Object.keys(benches);
const unknown = wanted.find((name) => !(name in benches));
const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
if (unknown !== undefined || !(rounds >= 1) || !(seconds > 0)) {
  console.error(
    `usage: npm run bench -- [${Object.keys(benches).join('] [')}] [--rounds 3] [--seconds 5] [--json]`,
  );
  process.exit(2);
}

let failed = false;
try {
  const machine = {
    node: process.versions.node,
    cpus: cpus().length,
    cpu: cpus()[0]?.model.trim(),
    arch: arch(),
    memory_gib: Math.round(totalmem() / 2 ** 30),
    ...(await describePostgres()),
  };
  for (const name of wanted as (keyof typeof benches)[]) {
    const before = process.cpuUsage();
    const found = await benches[name]({ rounds, seconds, say });
    const { user, system } = process.cpuUsage(before);
    const cpu_seconds = { bench: Math.round((user + system) / 1e4) / 100 };
    report({ ...found, cpu_seconds }, machine);
    failed ||= found.violations.length > 0 || found.judged.some((line) => !line.holds);
  }
} finally {
  await stopPostgres();
}
process.exitCode = failed ? 1 : 0;

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

function report(run: Run, machine: Record<string, unknown>): void {
  if (values.json) {
    for (const line of run.judged) console.log(JSON.stringify(line));
    const { judged: _, ...rest } = run;
    console.log(JSON.stringify({ run: rest, machine }));
    return;
  }
  console.log(`\n${run.bench}`);
  for (const [arm, samples] of Object.entries(run.samples))
    console.log(`  ${arm.padEnd(36)} ${samples.join(', ')} a second`);
  for (const line of run.judged) console.log(`  ${sentence(line)}`);
  for (const line of run.left_out) console.log(`  left out: ${line}`);
  for (const line of run.violations) console.log(`  VIOLATED: ${line}`);
}

function sentence({ metric, ours, baseline, baseline_value, ratio, goal, holds }: Judged): string {
  return `${holds ? 'holds ' : 'MISSED'} ${metric}: ${ours}, ${ratio} times ${baseline} (${baseline_value}); goal ${goal}`;
}
