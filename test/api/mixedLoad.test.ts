import { it } from 'vitest';
import { length } from '../setup/length.js';
import { mixedLoad } from './mixedLoad.js';
import { moneyBook } from './moneyBook.js';
import { sharedService } from './service.js';

const book = moneyBook();
const service = sharedService({ provider: book });
const seconds = length(6, 60);
/** A claim is to be answered in time on a slow machine too. */
const clients = length(8, 20);

it(
  `B05: after ${seconds} s of claims, cancels, payments, extends, expiries and adjustments by ${clients} clients over HTTP every count equals its records, each payment is applied or sent back once, and every workflow has ended with its hold (I1, I3, I5, I6, I7)`,
  { timeout: (seconds + 120) * 1000 },
  async () => {
    const played = await mixedLoad(service, book, { seconds, clients });
    process.stderr.write(`B05: ${JSON.stringify(played)}\n`);
  },
);
