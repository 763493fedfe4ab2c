import { expect, it } from 'vitest';
import { conflicts } from '../../db/database.js';
import type { DatabaseOptions } from '../../db/database.js';
import { changedFunctions, mutants } from '../model/mutants.js';
import { isThorough } from '../setup/database.js';
import { withClient } from './clients.js';
import { openShop, sharedShop } from './shop.js';
import type { Shop } from './shop.js';

/** What a hurried hand might have written: changes of the SQL functions, by file, each exactly once. */
export interface WrongForm {
  name: string;
  changes: Record<string, [from: string, to: string][]>;
}

/** One that the random histories know too. */
export function mutant(name: string): WrongForm {
  const { file, changes } = mutants.find((each) => each.name === name)!;
  return { name, changes: { [file]: changes } };
}

/** Runs a scenario and insists on its verdict; then on each wrong form, which must be told apart. */
export type BothForms = <V>(
  title: string,
  scenario: (shop: Shop) => Promise<V>,
  verdicts: { right: V; wrong: [forms: WrongForm | WrongForm[], harm: V][] },
) => void;

/**
 * Interleavings that are stepped statement by statement, each with the wrong forms that it must
 * catch. The right form runs on one shop whose books must agree, without a deadlock that a repeat
 * hides; each wrong form runs in a shop of its own and must end in exactly the harm that is named, in
 * `npm test` on the newest Postgres only.
 */
export function bothForms(version: number, options: Partial<DatabaseOptions> = {}): BothForms {
  const right = sharedShop(version, options);
  return (title, scenario, verdicts) => {
    it(title, async () => {
      const before = conflicts.repeated;
      expect(await scenario(right)).toEqual(verdicts.right);
      expect(conflicts.repeated - before).toBe(0);
    });
    for (const [forms, harm] of isThorough(version) ? verdicts.wrong : []) {
      for (const form of [forms].flat()) {
        it(`${title} (caught: ${form.name})`, async () => {
          expect(harm).not.toEqual(verdicts.right);
          const shop = await openShop(version, options);
          try {
            await install(shop.url, form);
            expect(await scenario(shop)).toEqual(harm);
          } finally {
            await shop.close();
          }
        });
      }
    }
  };
}

export async function install(url: string, { name, changes }: WrongForm): Promise<void> {
  const functions = Object.entries(changes).map(([file, each]) =>
    changedFunctions(name, file, each),
  );
  await withClient(url, (client) => client.query(functions.join('\n')));
}
