import { expect, it } from 'vitest';
import { changedFunctions, mutants } from '../model/mutants.js';

it('G21: every mutant of the random histories still has the text that it changes, once', () => {
  for (const { name, file, changes } of mutants) {
    expect(changedFunctions(name, file, changes)).toContain('create or replace function');
  }
});
