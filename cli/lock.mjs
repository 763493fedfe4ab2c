/**
 * A lock file that names its holder's process. Node has no flock, and a kill -9 leaves the file behind,
 * so the holder is recognised by its pid *and* the moment it started: a pid alone may belong to
 * another process by now.
 */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';

/**
 * Takes the lock, also one whose holder is gone.
 * @param {string} file
 * @returns {{ held: true, tookOver: boolean, release: () => void } | { held: false, pid: number }}
 */
export function takeLock(file) {
  mkdirSync(dirname(file), { recursive: true });
  const mine = JSON.stringify({ pid: process.pid, started: startOf(process.pid) });
  for (let tookOver = false; ; tookOver = true) {
    if (createWhole(file, mine)) {
      const release = () => {
        if (readIfThere(file) === mine) unlinkSync(file);
      };
      return { held: true, tookOver, release };
    }
    const holder = holderOf(file);
    if (holder) return { held: false, pid: holder };
    removeStale(file);
  }
}

/** Waits for the lock; `waiting` is called once, with the pid of the holder, if it has to. */
export async function waitForLock(file, waiting = (_pid) => {}) {
  for (let told = false; ; told = true) {
    const lock = takeLock(file);
    if (lock.held) return lock;
    if (!told) waiting(lock.pid);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** The pid of the living process that holds the lock, if any. */
export function holderOf(file) {
  const text = readIfThere(file);
  return text === undefined ? undefined : holderIn(text);
}

function holderIn(text) {
  let lock;
  try {
    lock = JSON.parse(text);
  } catch {
    return undefined; // not written by us: files appear whole
  }
  const started = startOf(lock.pid);
  return started !== undefined && started === lock.started ? lock.pid : undefined;
}

/**
 * Two starts may find the same stale file, and the slower one must not remove the lock that the
 * faster one has taken meanwhile. So stale files are looked at again and removed under a guard.
 */
function removeStale(file) {
  const guard = `${file}.takeover`;
  if (!createWhole(guard, String(process.pid))) {
    // The guard is held for microseconds; one that is older belongs to a process that was killed.
    const since = statSync(guard, { throwIfNoEntry: false })?.mtimeMs;
    if (since !== undefined && Date.now() - since > 10_000) removeIfThere(guard);
    return;
  }
  // No file is no stale file: between that look and a removal another start may take the lock (two
  // holders were seen). One look, therefore, and a stale text stays until it is removed here.
  const text = readIfThere(file);
  if (text !== undefined && holderIn(text) === undefined) removeIfThere(file);
  removeIfThere(guard);
}

/** Creates the file with its whole content at once; false when it is there already. */
function createWhole(file, text) {
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, text, { mode: 0o600 });
  try {
    linkSync(draft, file);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  } finally {
    unlinkSync(draft);
  }
}

/** When the process started, as the system tells it; undefined when there is no such process. */
function startOf(pid) {
  if (existsSync('/proc/self/stat')) {
    // The name in field 2 may hold spaces and parentheses; field 22 is counted from its end.
    const fields = readIfThere(`/proc/${pid}/stat`)?.split(') ').at(-1).split(' ');
    return fields && fields[0] !== 'Z' ? `${bootId()} ${fields[19]}` : undefined;
  }
  const { status, stdout } = spawnSync('ps', ['-p', String(pid), '-o', 'lstart='], {
    encoding: 'utf8',
  });
  return status === 0 ? stdout.trim() : undefined;
}

/** Start times count from the boot: after a restart the same pair could come again. */
function bootId() {
  return readIfThere('/proc/sys/kernel/random/boot_id')?.trim() ?? '';
}

function readIfThere(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function removeIfThere(file) {
  try {
    unlinkSync(file);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
}
