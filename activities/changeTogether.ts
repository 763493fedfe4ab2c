import { confirm } from '../db/confirm.js';
import type { ConfirmOutcome } from '../db/confirm.js';
import { confirmBatch } from '../db/confirmBatch.js';
import type { Confirmation } from '../db/confirmBatch.js';
import type { Database } from '../db/database.js';
import { expire } from '../db/expire.js';
import type { ExpireOutcome } from '../db/expire.js';
import { expireBatch } from '../db/expireBatch.js';
import { Lane, Places } from './together.js';

/** One is decided while the other is on its way. */
const batchesAtOnce = 2;

/** Who goes first while several wait: somebody asks for the first two, nobody for the last. */
const ranks = { changes: 0, confirmations: 1, expiries: 2 };

export interface ChangesTogether {
  confirm: (asked: Confirmation) => Promise<ConfirmOutcome>;
  expire: (holdId: string) => Promise<ExpireOutcome>;
  /** Any other change: it waits for its place, and then goes alone. */
  change: <T extends { outcome: string }>(work: () => Promise<T>) => Promise<T>;
}

/**
 * The changes of holds. Confirmations that meet go to Postgres together, and so do expiries, whatever their
 * products. Thousands of holds that end in the same second (F13, F35) then keep nobody waiting: at most two
 * of their batches run at once, and whatever a buyer asks for goes before the next one.
 *
 * @param connections of the changes' pool: so many calls run at once
 */
export function changeTogether(db: Database, connections: number): ChangesTogether {
  const places = new Places(connections);
  const confirmations = new Lane<Confirmation, ConfirmOutcome>(places, {
    rank: ranks.confirmations,
    most: batchesAtOnce,
    alone: ({ holdId, payment }) => confirm(db, holdId, payment),
    batch: (asked) => confirmBatch(db, asked),
  });
  const expiries = new Lane<string, ExpireOutcome>(places, {
    rank: ranks.expiries,
    most: batchesAtOnce,
    alone: (holdId) => expire(db, holdId),
    batch: (holdIds) => expireBatch(db, holdIds),
  });
  // One place is left to the others: somebody's lock on a bin may keep changes for 5 s each.
  const changes = new Lane<() => Promise<{ outcome: string }>, { outcome: string }>(places, {
    rank: ranks.changes,
    most: Math.max(1, connections - 1),
    alone: (work) => work(),
  });
  return {
    confirm: (asked) => confirmations.ask(asked),
    expire: (holdId) => expiries.ask(holdId),
    change: async <T extends { outcome: string }>(work: () => Promise<T>) =>
      (await changes.ask(work)) as T,
  };
}
