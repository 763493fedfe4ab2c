import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { sameSecond } from '../api/sameSecond.js';
import { sharedService } from '../api/service.js';
import { killProcess, startProcess } from '../workflows/process.js';
import type { OwnProcess } from '../workflows/process.js';

const count = Number(process.env['TAHAN_HOLDS'] ?? 10_000);
const seconds = Number(process.env['TAHAN_SECONDS'] ?? 240);
const service = sharedService({ workers: false });
let worker: OwnProcess;

beforeAll(async () => {
  worker = await startProcess('worker', {
    DATABASE_URL: service.shop.url,
    TAHAN_TASK_QUEUE_PREFIX: service.engine.holds.prefix,
    ...(process.env['TAHAN_CACHED_HOLDS'] && {
      TAHAN_CACHED_HOLDS: process.env['TAHAN_CACHED_HOLDS'],
    }),
  });
});
afterAll(() => killProcess(worker));

it(
  `R07, F13, F35: ${count} holds that end in the same second, with their timers`,
  { timeout: 2_400_000 },
  async () => {
    const began = Date.now();
    const say = (line: string) => {
      const at = ((Date.now() - began) / 1000).toFixed(1);
      process.stderr.write(`${at} s: ${line}; worker: ${memory()}\n`);
    };
    const took = await sameSecond(service, { count, seconds, timers: true, say });
    // They have turns, at least 10 a second (activities/turns.ts); nobody waits for them.
    expect(took).toBeLessThan(count * 100 + 30_000);
  },
);

function memory(): string {
  const file = (name: string) => readFileSync(`/proc/${worker.child.pid}/${name}`, 'utf8');
  const mib = (name: string) =>
    Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(file('status'))![1]) / 1024);
  const [user, system] = file('stat').split(' ').slice(13, 15).map(Number);
  return `${mib('VmRSS')} MiB, most ${mib('VmHWM')}, ${(user! + system!) / 100} s of CPU`;
}
