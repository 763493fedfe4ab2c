import type { Database } from './database.js';

/** An event of a type that nobody acts on, as it came. */
export interface OtherEvent {
  provider: string;
  eventId: string;
  paymentId: string | null;
  type: string;
  payload: unknown;
}

/**
 * Keeps an event that nothing follows from, so that an operator can find it. A repeat is counted.
 * @throws DatabaseFault DATABASE_UNAVAILABLE
 */
export async function storeEvent(
  db: Database,
  { provider, eventId, paymentId, type, payload }: OtherEvent,
  withinMs?: number,
): Promise<void> {
  await db.changes.answer(
    {
      name: 'store_event',
      text: `select tahan.store_event($1::text, $2::text, $3::text, $4::text, $5::json) as answer`,
      values: [provider, eventId, paymentId, type, JSON.stringify(payload ?? null)],
    },
    { withinMs },
  );
}
