import { describe, test } from 'vitest';
import { sharedOutage } from '../workflows/outage.js';

describe('F39, H3: Postgres is away for 60 s', () => {
  const outage = sharedOutage();

  test(
    'F39, H3: holds in every state are shown pending with their error all the time, and each ends right',
    { timeout: 180_000 },
    async () => {
      await outage.of(60_000);
    },
  );
});
