/** One judged number: ours against a baseline of the same run, so that the machine cancels out. */
export interface Judged {
  bench: string;
  metric: string;
  ours: number;
  baseline: string;
  baseline_value: number;
  /** ours / baseline_value */
  ratio: number;
  goal: string;
  holds: boolean;
}

/** What a bench ran and what it found; a violated invariant is a failed run, whatever its numbers say. */
export interface Run {
  bench: string;
  settings: Record<string, unknown>;
  /** Every single measurement by arm, in the order in which they were made. */
  samples: Record<string, number[]>;
  /** CPU seconds by process, for the whole bench. */
  cpu_seconds: Record<string, number>;
  violations: string[];
  judged: Judged[];
  /** Arms that could not run here, and why. */
  left_out: string[];
}

export interface Arm {
  name: string;
  /** Runs once on fresh data for so many seconds; answers with a rate per second. */
  run(seconds: number): Promise<{ rate: number; violations: string[] }>;
}

/**
 * Runs the arms in turn, round by round: what slows the machine for a while slows all of them. An arm
 * counts with the median of its rounds.
 */
export async function interleave(
  arms: Arm[],
  { rounds, seconds, say }: { rounds: number; seconds: number; say: (line: string) => void },
): Promise<{ samples: Record<string, number[]>; violations: string[] }> {
  const samples: Record<string, number[]> = {};
  const violations: string[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    for (const arm of arms) {
      const result = await arm.run(seconds);
      (samples[arm.name] ??= []).push(Math.round(result.rate));
      violations.push(...result.violations.map((what) => `${arm.name}: ${what}`));
      say(`round ${round} of ${rounds}, ${arm.name}: ${Math.round(result.rate)} a second`);
    }
  }
  return { samples, violations };
}

/** @param least the smallest ratio that reaches the goal */
export function atLeast(
  least: number,
  {
    bench,
    metric,
    ours,
    baseline,
    baselineName,
  }: {
    bench: string;
    metric: string;
    ours: number[];
    baseline: number[];
    baselineName: string;
  },
): Judged {
  const [value, against] = [median(ours), median(baseline)];
  const ratio = Math.round((value / against) * 100) / 100;
  return {
    bench,
    metric,
    ours: value,
    baseline: baselineName,
    baseline_value: against,
    ratio,
    goal: `>= ${least}`,
    holds: ratio >= least,
  };
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1
    ? sorted[Math.floor(middle)]!
    : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Calls `work` from so many loops at once until the time is over; answers with the calls a second. */
export async function closedLoop(
  loops: number,
  seconds: number,
  work: (loop: number) => Promise<void>,
): Promise<number> {
  const startedAt = performance.now();
  const endsAt = startedAt + seconds * 1000;
  let calls = 0;
  await Promise.all(
    Array.from({ length: loops }, async (_, loop) => {
      while (performance.now() < endsAt) {
        await work(loop);
        calls += 1;
      }
    }),
  );
  return calls / ((performance.now() - startedAt) / 1000);
}
