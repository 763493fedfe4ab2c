import { defaultPayloadConverter } from '@temporalio/common';
import type { Payload, PayloadConverter } from '@temporalio/common';

/**
 * Temporal's own converter, except that what can't be decoded becomes a value that no handler
 * accepts. Otherwise one signal of a sender with another codec fails every task of its hold before
 * any handler runs, the timer is never handled, and the units never come back (F19).
 */
export const payloadConverter: PayloadConverter = {
  toPayload: (value) => defaultPayloadConverter.toPayload(value),
  fromPayload<T>(payload: Payload): T {
    try {
      return defaultPayloadConverter.fromPayload<T>(payload);
    } catch (error) {
      return { undecodable: error instanceof Error ? error.message : String(error) } as T;
    }
  },
};
