import { readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs';

export interface Native {
  pid: number;
  uid: number;
}

/** The processes that work in a folder, or name it on their command line. */
export function processesOf(folder: string): Native[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid !== process.pid)
    .flatMap((pid) => {
      try {
        const names = readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder);
        const works = readlinkSync(`/proc/${pid}/cwd`).startsWith(folder);
        return names || works ? [{ pid, uid: statSync(`/proc/${pid}`).uid }] : [];
      } catch {
        return []; // it has ended
      }
    });
}
