import { it } from 'vitest';
import { length } from '../setup/length.js';
import { sameSecond } from './sameSecond.js';
import { sharedService } from './service.js';

const service = sharedService();

it(
  `R07, F13, F35: ${length(200, 500)} holds that end in the same second: sellable from then on, each ends once, and what buyers of another product ask for meanwhile is answered within 5 s (10,000 with their timers in test/chaos)`,
  { timeout: 180_000 },
  async () => {
    await sameSecond(service, { count: length(200, 500), seconds: 600, timers: false });
  },
);
