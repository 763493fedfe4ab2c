import { randomUUID } from 'node:crypto';
import type { QueryConfig } from 'pg';
import type { Database } from '../../db/database.js';
import type { CheckoutProduct } from '../../db/readCheckouts.js';
import type { Hold } from '../../db/readHold.js';
import type { HoldRequest, send } from '../../workflows/contract.js';

/** Products of the benches; any other has as many units as are asked for. */
export const skus = { hot: 'HOT', none: 'NONE' } as const;

/**
 * A database that answers at once. Of HOT it has so many units, of NONE none, and so the gate before
 * the workflows lets through as many claims as on the real one.
 */
export function standIn(
  units: number,
  toWorkflow: typeof send,
): { db: Database; send: typeof send } {
  const held = new Map<string, { request: HoldRequest; expiresAt: string }>();
  const salt = randomUUID();
  let left = units;

  function answer({ name, values = [] }: QueryConfig): unknown {
    const id = values[0] as string;
    switch (name) {
      case 'read_key':
        return { id: 'key', role: 'shop', name: 'bench' };
      case 'salt':
        return salt;
      case 'read_checkouts': {
        const [ids, , wanted] = values as [string[], string[], string[]];
        const holds = ids.flatMap((each) => shown(each) ?? []);
        const products = [...new Set(wanted)].map(product);
        const now = new Date().toISOString();
        return { now, holds, products, carts: [], bought: [], refused: [] };
      }
      case 'read_hold':
        return shown(id);
      case 'open_hold':
        return { ...held.get(id)!.request, status: 'HELD' };
      case 'after_deadline':
        return { outcome: 'FREE' };
      case 'record_payment':
        return {
          outcome: 'RECORDED',
          holdId: values[4] as string,
          ...{ status: 'succeeded', inTime: true, settlement: null, settlementReason: null },
        };
      default:
        throw new Error(`the floor has no answer to the statement "${name}"`);
    }
  }

  function product(sku: string): CheckoutProduct {
    const few: Record<string, number> = { [skus.hot]: left, [skus.none]: 0 };
    return {
      ...{ sku, active: true, currency: null, maxHoldSeconds: 86_400, perBuyerLimit: null },
      ...{ sellable: few[sku] ?? 0, more: !(sku in few) },
    };
  }

  function shown(holdId: string): Hold | null {
    const known = held.get(holdId);
    if (known === undefined) return null;
    const { request, expiresAt } = known;
    const now = new Date().toISOString();
    const remainingMs = Date.parse(expiresAt) - Date.now();
    return {
      id: holdId,
      status: 'HELD',
      buyerId: request.buyerId,
      requestHash: request.requestHash,
      reason: null,
      refusal: null,
      lines: request.lines!.map((line) => ({
        ...line,
        ...{ released: 0, returned: 0, unitPriceMinor: null },
        allocations: [{ bin: 'b1', quantity: line.quantity }],
      })),
      ...{ createdAt: now, expiresAt, serverTime: now, closedAt: null, remainingMs },
      expiresInSeconds: Math.ceil(remainingMs / 1000),
      ...{ extensions: 0, metadata: {}, payments: [], order: null },
    };
  }

  const calls = {
    lockBudgetMs: 4000,
    answer: (query: QueryConfig) => Promise.resolve(answer(query)),
    rows: (query: QueryConfig) => Promise.resolve([answer(query)]),
  };
  const db = {
    ...{ claims: calls, changes: calls, reads: calls },
    announce: () => undefined,
    listen: () => ({ stop: () => undefined }),
    close: () => Promise.resolve(),
  } as unknown as Database;

  /** Keeps what was held, for what is read of it afterwards. */
  const keeping: typeof send = async (holds, request, message, limits) => {
    const sent = await toWorkflow(holds, request, message, limits);
    if (message.kind === 'claimed' && sent.outcome === 'ANSWERED') {
      const { expiresAt } = sent.answer as unknown as { expiresAt: string };
      if (request.lines![0]!.sku === skus.hot && !held.has(request.holdId)) left -= 1;
      held.set(request.holdId, { request, expiresAt });
    }
    return sent;
  };
  return { db, send: keeping };
}
