import { readFileSync } from 'node:fs';
import { inject } from 'vitest';

/**
 * The workflows with a defect put in, to show that a check notices it: each place stands in the
 * bundle exactly once, else the test has lost its meaning and says so.
 */
export function mutant(edits: Record<string, string>): { code: string } {
  let code = readFileSync(inject('bundlePath'), 'utf8');
  for (const [place, other] of Object.entries(edits)) {
    const times = code.split(place).length - 1;
    if (times !== 1) throw new Error(`"${place}" stands ${times} times in the bundle, not once`);
    code = code.replace(place, () => other);
  }
  return { code };
}
