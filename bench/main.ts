/**
 * Speed, as ratios to a baseline of the same run: `npm run bench`, `npm run bench -- claims --json`.
 * Ends with 1 when an invariant was violated, or a goal was missed.
 */
import { arch, cpus, loadavg, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { claims } from './claims.js';
import { takeLock } from '../cli/lock.mjs';
import { root } from '../cli/root.js';
import { passedOn } from './arms/start.js';
import { describePostgres, stopPostgres } from './database.js';
import { expiry } from './expiry.js';
import { flash, saturated } from './flash.js';
import type { Judged, Options, Run } from './measure.js';
import { memory } from './memory.js';
import { reads } from './reads.js';
import { refusal } from './refusal.js';
import { steady } from './steady.js';

const usual = { claims, reads, flash, saturated, steady, expiry, refusal };
const benches = { ...usual, memory };

const usage = `npm run bench -- [${Object.keys(benches).join('] [')}]
Without a name all but memory: a quarter of an hour on two quiet cores. memory takes 40 minutes.
  --rounds 3        of each; an arm counts with the median of its rounds
  --seconds 5       of each round of claims, reads, steady and refusal
  --buyers 20000    who come to flash and saturated
  --rate 2000       of them in a second, to flash
  --units 500       that flash has; saturated has twice as many
  --clients 64      at once, of saturated and refusal
  --holds 500       that end in the same second (expiry); 10000 that are kept open (memory)
  --minutes 30      of memory
  --temporal ADDRESS  a Temporal server of yours; without it each arm starts a development server
  --json            one line per judged number, and one per bench`;

const { values, positionals } = readArguments();
const wanted = positionals.length > 0 ? positionals : Object.keys(usual);
const unknown = wanted.find((name) => !(name in benches));
const options: Options = {
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  buyers: Number(values.buyers),
  rate: Number(values.rate),
  units: Number(values.units),
  clients: Number(values.clients),
  holds: Number(values.holds ?? (wanted.includes('memory') ? 10_000 : 500)),
  minutes: Number(values.minutes),
  temporalAddress: values.temporal,
  say,
};
const numbers = Object.values(options).filter((value) => typeof value === 'number');
if (unknown !== undefined || !numbers.every((value) => value > 0) || options.holds < 100) {
  console.error(usage);
  process.exit(2);
}

const environment = Object.fromEntries(
  passedOn.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])),
);
// Two at once would measure each other.
const lock = takeLock(join(root, '.tahan', 'bench.lock'));
if (!lock.held) {
  console.error(`Another bench runs in this clone, as process ${lock.pid}.`);
  process.exit(2);
}
process.on('exit', lock.release);

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
    const loadBefore = loadavg()[0]!;
    const found = await benches[name](options);
    const { user, system } = process.cpuUsage(before);
    found.cpu_seconds['bench'] = Math.round((user + system) / 1e4) / 100;
    // Others on the machine slow all arms; a run with much of them is worth less.
    Object.assign(found.settings, { environment, load_before: loadBefore });
    report(found, machine);
    failed ||= found.violations.length > 0 || found.judged.some((line) => !line.holds);
  }
} finally {
  await stopPostgres();
}
process.exitCode = failed ? 1 : 0;

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        rounds: { type: 'string', default: '3' },
        seconds: { type: 'string', default: '5' },
        buyers: { type: 'string', default: '20000' },
        rate: { type: 'string', default: '2000' },
        units: { type: 'string', default: '500' },
        clients: { type: 'string', default: '64' },
        holds: { type: 'string' },
        minutes: { type: 'string', default: '30' },
        temporal: { type: 'string' },
      },
    });
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}

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
  for (const [what, numbers] of Object.entries(run.numbers))
    console.log(`  ${what.padEnd(50)} ${inBrief(numbers)}`);
  for (const [process, spent] of Object.entries(run.cpu_seconds))
    console.log(`  CPU of ${process.padEnd(43)} ${spent} s`);
  for (const line of run.judged) console.log(`  ${sentence(line)}`);
  for (const line of run.left_out) console.log(`  left out: ${line}`);
  for (const line of run.violations) console.log(`  VIOLATED: ${line}`);
}

/** Looks over half an hour are not for reading. */
function inBrief(numbers: number[]): string {
  if (numbers.length <= 10) return numbers.join(', ');
  return `${numbers[0]} first, ${Math.max(...numbers)} most, ${numbers.at(-1)} last of ${numbers.length}`;
}

function sentence({ metric, ours, baseline, baseline_value, ratio, goal, holds }: Judged): string {
  return `${holds ? 'holds ' : 'MISSED'} ${metric}: ${ours}, ${ratio} times ${baseline} (${baseline_value}); goal ${goal}`;
}
