import { it } from 'vitest';
import { killedBeforeTheSignal } from '../api/killed.js';
import { moneyBook } from '../api/moneyBook.js';
import { sharedService } from '../api/service.js';

const book = moneyBook();
const service = sharedService({ provider: book });

it(
  'F16, A14: kill -9 of the API between storing and signalling, 50 times with four payments each: all confirmed or settled once',
  { timeout: 1_800_000 },
  async () => {
    for (let round = 1; round <= 10; round += 1)
      await killedBeforeTheSignal(service, book, { kills: 5, each: 4, holdSeconds: 20 });
  },
);
