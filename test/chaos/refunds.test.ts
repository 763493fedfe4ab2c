import { afterEach, expect, it } from 'vitest';
import { refundAll } from '../project/refundTrial.js';
import { closeAll } from '../project/sandboxed.js';

afterEach(closeAll);

it(
  'F18: 10,000 refunds, one in five executed but not answered, no key remembered: exactly one each',
  { timeout: 1_800_000 },
  async () => {
    const { sandbox } = await refundAll(10_000);
    expect(sandbox.book.refunds).toHaveLength(10_000);
  },
);
