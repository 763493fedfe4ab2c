import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { tally } from './books.js';
import { atOnce } from './rivals.js';
import type { Shop } from './shop.js';

/**
 * So many rounds of 64 claims at once by a buyer of its own, with a key each, where a limit leaves
 * room for two and stock is there: never more, and never fewer (S11).
 */
export async function limitRounds(shop: Shop, sku: string, rounds: number): Promise<void> {
  const claimDeadline = await shop.now(600_000);
  for (let round = 1; round <= rounds; round += 1) {
    const buyerId = `buyer-${randomUUID()}`;
    const answers = await atOnce(64, () => shop.claim({ [sku]: 1 }, { buyerId, claimDeadline }));
    expect(tally(answers), `round ${round}`).toEqual({ HELD: 2, BUYER_LIMIT: 62 });
  }
}
