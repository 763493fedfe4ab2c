import { expect, it } from 'vitest';
import { stockLockTimeoutMs } from '../../db/database.js';
import { length } from '../setup/length.js';
import { oppositeOrder } from './oppositeOrder.js';
import { sharedService } from './service.js';

const service = sharedService();
const count = length(40, 200);
const buyers = length(8, 20);

it(
  `B02: ${count} orders of the same two products in opposite order, with extends, cancels, adjustments and payments told twice at once, are ${count} times 201, without a defect, a lock that is not free or a deadlock; half are sold and nothing is held`,
  { timeout: 180_000 },
  async () => {
    const { slowestMs, repeated } = await oppositeOrder(service, { count, buyers });
    process.stderr.write(
      `B02: ${count} orders, ${repeated} answers repeated, the slowest ${slowestMs} ms\n`,
    );
    expect(slowestMs).toBeLessThan(stockLockTimeoutMs({}));
  },
);
