import { it } from 'vitest';
import { moneyBook } from './moneyBook.js';
import { playAll } from './permutations.js';
import { sharedService } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });

it(
  'F22, F25, B07: 30 orders of up to five payment events, each delivered one to three times, drawn by a seed and played end to end, end as the policies say (300 in test/chaos)',
  { timeout: 180_000 },
  async () => {
    const seed = Number(process.env['TAHAN_SEED'] ?? Date.now() % 1_000_000_000);
    await playAll(service, book, { stories: 30, seed });
  },
);
