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

/** What all benches are given. `npm run bench -- --help` says what each is for. */
export interface Options {
  rounds: number;
  seconds: number;
  /** Of the sale: buyers, how many come in a second, and units. */
  buyers: number;
  rate: number;
  units: number;
  clients: number;
  /** That expire at once, or are kept open. */
  holds: number;
  minutes: number;
  /** Of a Temporal in place of the development server. */
  temporalAddress: string | undefined;
  say: (line: string) => void;
}

/** What a bench ran and what it found; a violated invariant is a failed run, whatever its numbers say. */
export interface Run {
  bench: string;
  settings: Record<string, unknown>;
  /** Every single measurement by arm, in the order in which they were made. */
  samples: Record<string, number[]>;
  /** What else was measured in each round, its unit in its name. */
  numbers: Record<string, number[]>;
  /** CPU seconds by arm and process under load, starts and warm-ups left out; of the bench itself, in all. */
  cpu_seconds: Record<string, number>;
  violations: string[];
  judged: Judged[];
  /** Arms that could not run here, and why. */
  left_out: string[];
}

export interface Arm {
  name: string;
  /** Runs once on fresh data for so many seconds; answers with a rate per second. */
  run(seconds: number): Promise<Round>;
}

export interface Round {
  rate: number;
  violations: string[];
  numbers?: Record<string, number>;
  /** By process. */
  cpuSeconds?: Record<string, number>;
}

type Measured = Pick<Run, 'samples' | 'numbers' | 'cpu_seconds' | 'violations'>;

/**
 * Runs the arms in turn, round by round: what slows the machine for a while slows all of them. An arm
 * counts with the median of its rounds.
 */
export async function interleave(
  arms: Arm[],
  { rounds, seconds, say }: { rounds: number; seconds: number; say: (line: string) => void },
): Promise<Measured> {
  const found: Measured = { samples: {}, numbers: {}, cpu_seconds: {}, violations: [] };
  for (let round = 1; round <= rounds; round += 1) {
    for (const arm of arms) {
      const { name } = arm;
      const { rate, violations, numbers = {}, cpuSeconds = {} } = await arm.run(seconds);
      (found.samples[name] ??= []).push(rounded(rate));
      for (const [what, number] of Object.entries(numbers)) {
        (found.numbers[`${name}: ${what}`] ??= []).push(rounded(number));
      }
      for (const [process, spent] of Object.entries(cpuSeconds)) {
        const key = `${name}: ${process}`;
        found.cpu_seconds[key] = rounded((found.cpu_seconds[key] ?? 0) + spent);
      }
      found.violations.push(...violations.map((what) => `${name}: ${what}`));
      say(`round ${round} of ${rounds}, ${name}: ${rounded(rate)} a second`);
    }
  }
  return found;
}

/** Three digits, or all before the point. */
function rounded(number: number): number {
  if (!Number.isFinite(number)) return number;
  return Math.abs(number) >= 100 ? Math.round(number) : Number(number.toPrecision(3));
}

interface Compared {
  bench: string;
  metric: string;
  ours: number[];
  baseline: number[];
  baselineName: string;
}

/** @param least the smallest ratio that reaches the goal */
export function atLeast(least: number, compared: Compared): Judged {
  return judge(compared, `>= ${least}`, (ratio) => ratio >= least);
}

/** @param most the largest ratio that keeps to the goal */
export function atMost(most: number, compared: Compared): Judged {
  return judge(compared, `<= ${most}`, (ratio) => ratio <= most);
}

/** Against a number that was set, not measured: the limit itself is the baseline. */
export function within(
  limit: number,
  { bench, metric, ours }: { bench: string; metric: string; ours: number[] },
): Judged {
  return atMost(1, { bench, metric, ours, baseline: [limit], baselineName: 'the limit' });
}

/** What could not be measured (NaN) misses its goal. */
function judge(
  { bench, metric, ours, baseline, baselineName }: Compared,
  goal: string,
  reaches: (ratio: number) => boolean,
): Judged {
  const [value, against] = [median(ours), median(baseline)].map(rounded) as [number, number];
  const ratio = Math.round((value / against) * 100) / 100;
  return {
    bench,
    metric,
    ours: value,
    baseline: baselineName,
    baseline_value: against,
    ratio,
    goal,
    holds: reaches(ratio),
  };
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1
    ? sorted[Math.floor(middle)]!
    : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** By the nearest rank; NaN of nothing. */
export function percentile(values: number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? NaN;
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
