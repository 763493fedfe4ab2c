import { randomUUID } from 'node:crypto';
import type { QueryConfig } from 'pg';
import type { Database } from '../../db/database.js';
import type { Hold } from '../../db/readHold.js';
import type { HoldRequest, Sent, send } from '../../workflows/contract.js';

/** Products of the benches; any other has as many units as are asked for. */
export const skus = { hot: 'HOT', none: 'NONE' } as const;

/**
 * A database that answers at once, and a way to the workflows that lets through as many claims of HOT
 * as there are units, none of NONE, and refuses the others at once: without Postgres behind it the
 * floor could not know when it is sold out.
 */
export function standIn(
  units: number,
  toWorkflow: typeof send,
): { db: Database; send: typeof send } {
  const asked = new Map<string, { request: HoldRequest; expiresAt: string }>();
  const salt = randomUUID();
  let left = units;

  function answer({ name, values = [] }: QueryConfig): unknown {
    const [id, second] = values as [string, string[] | null];
    switch (name) {
      case 'read_key':
        return { id: 'key', role: 'shop', name: 'bench' };
      case 'salt':
        return salt;
      case 'read_checkout': {
        const products = second!.map((sku) => ({ sku, active: true, maxHoldSeconds: 86_400 }));
        return { now: new Date().toISOString(), hold: null, products };
      }
      case 'read_hold':
        return shown(id);
      case 'open_hold':
        return { ...asked.get(id)!.request, status: 'HELD' };
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

  function shown(holdId: string): Hold | null {
    const known = asked.get(holdId);
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

  const limited: typeof send = async (holds, request, message, limits) => {
    if (message.kind !== 'claimed') return toWorkflow(holds, request, message, limits);
    const { sku } = request.lines![0]!;
    if (sku === skus.none || (sku === skus.hot && left === 0)) {
      return soldOut(request, sku) as never;
    }
    if (sku === skus.hot) left -= 1;
    const sent = await toWorkflow(holds, request, message, limits);
    const claim = (sent as Sent<{ outcome: string; expiresAt: string }>).outcome;
    if (claim === 'ANSWERED') {
      const { expiresAt } = (sent as unknown as { answer: { expiresAt: string } }).answer;
      asked.set(request.holdId, { request, expiresAt });
    } else if (sku === skus.hot) left += 1;
    return sent;
  };
  return { db, send: limited };
}

function soldOut({ requestHash }: HoldRequest, sku: string) {
  const shortfalls = [{ sku, requested: 1, available: 0 }];
  return {
    outcome: 'ANSWERED',
    answer: { outcome: 'INSUFFICIENT_STOCK', shortfalls, requestHash },
  };
}
