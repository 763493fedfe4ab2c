import { it } from 'vitest';
import { killedBeforeTheSignal } from './killed.js';
import { moneyBook } from './moneyBook.js';
import { sharedService } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });

it(
  'F16, A14: kill -9 of the API between storing and signalling, 24 payments in 2 kills: each confirmed or settled once, also when its sender never repeats (50 kills in test/chaos)',
  { timeout: 180_000 },
  () => killedBeforeTheSignal(service, book, { kills: 2, each: 12, holdSeconds: 14 }),
);
