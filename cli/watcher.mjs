/**
 * Stands between the launcher and one child. The launcher holds the other end of this process's
 * stdin; when that pipe closes, for whatever reason (also kill -9, which no process can handle),
 * the child is asked to end, then made to. So nothing ever outlives the launcher.
 *
 * The first line on stdin is the job: it may carry secrets, so it does not stand on a command line.
 * The child's pid and its end are reported as JSON lines on file descriptor 3.
 */
import { spawn } from 'node:child_process';
import { rmSync, writeSync } from 'node:fs';
import { takeLock } from './lock.mjs';

let child;
let job;
let ending = false;
let firstLine = '';

process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  if (job) return;
  firstLine += chunk;
  if (firstLine.includes('\n')) start(JSON.parse(firstLine.slice(0, firstLine.indexOf('\n'))));
});
for (const event of ['end', 'close', 'error']) process.stdin.on(event, end);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, end);

function start(given) {
  job = given;
  if (ending) leave(0);
  // Tells the next start that something of this one is still ending.
  if (job.lock) takeLock(job.lock);
  const { command, args, cwd, env, uid, gid } = job;
  child = spawn(command, args, { cwd, env, uid, gid, stdio: ['ignore', 'inherit', 'inherit'] });
  child.on('error', (error) => {
    report({ failed: error.message });
    leave(1);
  });
  child.on('exit', (code, signal) => {
    report({ code, signal });
    leave(code ?? 1);
  });
  if (child.pid) report({ pid: child.pid });
}

function end() {
  if (ending) return;
  ending = true;
  if (!job) process.exit(0);
  child.kill(job.signal);
  setTimeout(() => child.kill('SIGKILL'), job.graceMs);
}

function leave(code) {
  for (const folder of job.remove) {
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    } catch {
      // A half-removed temporary folder is no reason to fail.
    }
  }
  process.exit(code);
}

function report(line) {
  try {
    writeSync(3, `${JSON.stringify(line)}\n`);
  } catch {
    // The launcher is gone: nobody reads.
  }
}
