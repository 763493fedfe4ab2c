import { describe, test } from 'vitest';
import { sharedOutage } from './outage.js';

describe('F39, H3: Postgres is away', () => {
  const outage = sharedOutage();

  test('F39, H3: in claim, wait, payment, confirm, cancel and extend: an operator sees each pending with its error, and each ends right', async () => {
    await outage.of(1000);
  });
});
