export type Lock =
  { held: true; tookOver: boolean; release: () => void } | { held: false; pid: number };
export function takeLock(file: string): Lock;
export function waitForLock(
  file: string,
  waiting?: (pid: number) => void,
): Promise<Extract<Lock, { held: true }>>;
export function holderOf(file: string): number | undefined;
