import { readFileSync, readdirSync } from 'node:fs';

/** Of Linux on every machine that Node runs on. */
const ticksPerSecond = 100;

/** CPU seconds so far, by name; empty where there is no /proc. */
export function cpuSecondsOf(pids: Record<string, number>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const [name, pid] of Object.entries(pids)) {
    // Postgres works in a process per connection; those that have ended are counted in their parent.
    const own = name === 'postgres' ? [pid, ...childrenOf(pid)] : [pid];
    const spent = own.map((each) => timesOf(each, name === 'postgres' && each === pid));
    if (spent.every((each) => each !== undefined)) {
      found[name] = spent.reduce((sum, each) => sum + each, 0);
    }
  }
  return found;
}

/** What each has spent between two looks; a process that was not there at first has spent nothing before. */
export function spentBetween(
  before: Record<string, number>,
  after: Record<string, number>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after).map(([name, seconds]) => [name, seconds - (before[name] ?? 0)]),
  );
}

/** Resident memory in MiB; NaN where there is no /proc. */
export function residentMiB(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s*(\d+) kB/m.exec(status)?.[1]) / 1024;
  } catch {
    return NaN;
  }
}

function timesOf(pid: number, withEndedChildren: boolean): number | undefined {
  const fields = statOf(pid);
  if (fields === undefined) return undefined;
  // utime, stime, cutime, cstime
  const ticks = fields.slice(11, withEndedChildren ? 15 : 13);
  return ticks.reduce((sum, each) => sum + Number(each), 0) / ticksPerSecond;
}

function childrenOf(pid: number): number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((each) => Number.isInteger(each) && statOf(each)?.[1] === String(pid));
  } catch {
    return [];
  }
}

/** What stands behind the name, which may hold spaces: state, ppid, ... */
function statOf(pid: number): string[] | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
  } catch {
    return undefined; // gone meanwhile, or no /proc
  }
}
