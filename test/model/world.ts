import { createHash } from 'node:crypto';
import type { Dice } from './dice.js';
import type { Lane } from './lane.js';

export interface ModelProduct {
  sku: string;
  spread: boolean;
  latePayment: 'refund' | 'accept_if_available' | 'review';
  limit: number | null;
  holdSeconds: number;
  maxHoldSeconds: number;
  maxExtensions: number;
  priceMinor: number | null;
  bins: { code: string; stock: number; safetyStock: number }[];
}

/** The shop of one history: products and buyers that no other history of the database touches. */
export interface World {
  name: string;
  products: ModelProduct[];
  buyers: string[];
  /** The id of the history's n-th claim: the same for the same seed and place in the run. */
  holdId(n: number): string;
}

export function drawWorld(name: string, dice: Dice): World {
  // Some shops are scarce and some are not, so that refusals are common but not the rule.
  const most = dice.pick([5, 10, 15, 15]);
  const priced = dice.chance(0.6);
  const products = Array.from({ length: dice.between(1, 3) }, (_, index): ModelProduct => {
    const spread = dice.chance(0.5);
    const bins = Array.from({ length: dice.between(1, 3) }, (_, bin) => ({
      code: `b${bin + 1}`,
      stock: dice.between(1, most),
      safetyStock: dice.chance(0.2) ? dice.between(1, 2) : 0,
    }));
    return {
      sku: `${name}-${index}`,
      spread,
      latePayment: dice.pick(['refund', 'accept_if_available', 'accept_if_available', 'review']),
      limit: dice.chance(0.25) ? dice.between(2, 6) : null,
      holdSeconds: dice.between(1, 3),
      maxHoldSeconds: dice.between(4, 8),
      maxExtensions: dice.between(0, 3),
      priceMinor: priced ? dice.pick([0, 1000, 2500]) : null,
      bins,
    };
  });
  const buyers = Array.from({ length: dice.between(2, 6) }, (_, index) => `${name}-buyer-${index}`);
  return { name, products, buyers, holdId: (n) => uuidOf(`${name} ${n}`) };
}

function uuidOf(text: string): string {
  const hex = createHash('sha1').update(text).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `5${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}

/** Opens the shop by the operator's functions, in one statement. */
export async function openWorld(lane: Lane, world: World): Promise<void> {
  const calls: string[] = [];
  const values: unknown[] = [];
  const value = (of: unknown) => `$${values.push(of)}`;
  for (const product of world.products) {
    const { sku, bins, spread, limit, ...settings } = product;
    const stored = {
      ...settings,
      allocation: spread ? 'spread' : 'in_order',
      perBuyerLimit: limit,
      currency: product.priceMinor === null ? null : 'EUR',
    };
    calls.push(
      `tahan.put_product(${value(sku)}, ${value(JSON.stringify(stored))}::jsonb, 'operator', 'model')`,
    );
    for (const { code, stock, safetyStock } of bins) {
      calls.push(
        `tahan.put_bin(${value(sku)}, ${value(code)}, ${value(safetyStock)}::int, 'operator', 'model')`,
        `tahan.restock(${value(sku)}, ${value(code)}, ${value(stock)}::int, 'opening', 'operator', ${value(`opening ${sku} ${code}`)}, null)`,
      );
    }
  }
  const [row] = await lane.query<{ answers: { outcome: string }[] }>(
    `select jsonb_build_array(${calls.join(', ')}) as answers`,
    values,
  );
  const wrong = row!.answers.find(({ outcome }) => outcome !== 'CREATED' && outcome !== 'DONE');
  if (wrong) throw new Error(`the shop can't open: ${JSON.stringify(wrong)}`);
}
