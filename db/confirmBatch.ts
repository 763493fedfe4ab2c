import type { ConfirmOutcome } from './confirm.js';
import type { Database } from './database.js';
import { patienceMs } from './patience.js';
import type { PaymentRef } from './values.js';

/** A payment and the hold that it is to confirm. */
export interface Confirmation {
  holdId: string;
  payment: PaymentRef;
}

/**
 * What a batch says of one of its holds; `ALONE`: not decided, and nothing done: ask `confirm`. `BUSY`:
 * somebody keeps a bin of this hold, and nothing has changed.
 */
export type BatchedConfirmation =
  Extract<ConfirmOutcome, { outcome: 'CONFIRMED' }> | { outcome: 'ALONE' } | { outcome: 'BUSY' };

/**
 * Confirms holds together, each for its own payment, in one transaction. Answers in the same order. Only
 * plain ones are decided: see the function. It waits for no hold, and for bins at most `patienceMs` in all.
 * @throws DatabaseFault DATABASE_UNAVAILABLE; any other error is of one poisoned item. Nothing has changed,
 *   or (DATABASE_UNAVAILABLE) a repeat finds the answer that was lost.
 */
export function confirmBatch(db: Database, asked: Confirmation[]): Promise<BatchedConfirmation[]> {
  return db.changes.answer<BatchedConfirmation[]>({
    name: 'confirm_batch',
    text: `select tahan.confirm_batch($1::uuid[], $2::text[], $3::text[], $4::int) as answer`,
    values: [
      asked.map(({ holdId }) => holdId),
      asked.map(({ payment }) => payment.provider),
      asked.map(({ payment }) => payment.paymentId),
      patienceMs(db),
    ],
  });
}
