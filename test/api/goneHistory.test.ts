import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { until } from '../workflows/engine.js';
import { sharedService } from './service.js';
import type { Answer, Hold } from './service.js';

/** Temporal forgets a hold after the retention, or when somebody deletes it; Postgres does not. */
const service = sharedService();

interface Known {
  hold: Hold;
  sku: string;
  buyer: string;
  key: string;
  fields: object;
}

/** A shop repeats while the answer is "again". */
async function asked<T>(ask: () => Promise<Answer<T>>): Promise<Answer<T>> {
  for (let tries = 1; ; tries += 1) {
    const answer = await ask();
    if (answer.status !== 503 || tries === 10) return answer;
  }
}

const kinds = {
  claim: ({ sku, ...of }: Known) => service.checkout({ [sku]: 1 }, of),
  read: ({ hold }: Known) => service.get(`/v1/holds/${hold.id}`),
  cancel: ({ hold }: Known) =>
    asked(() => service.post(`/v1/holds/${hold.id}/cancel`, { reason: 'changed my mind' })),
  extend: ({ hold }: Known) =>
    asked(() => service.post(`/v1/holds/${hold.id}/extend`, { seconds: 60 })),
  payment: ({ hold }: Known) => asked(() => service.paid(hold.id)),
};

/** What is told of a hold, without the times and ids of this one request. */
async function answersOf(known: Known): Promise<Record<string, unknown>> {
  const told: Record<string, unknown> = {};
  for (const [kind, ask] of Object.entries(kinds)) {
    const { status, body } = await ask(known);
    const { code, status: of } = body as { code?: string; status?: unknown };
    told[kind] = [status, code ?? of ?? 'taken'];
  }
  return told;
}

const ends: Record<string, (hold: Hold) => Promise<unknown>> = {
  CONFIRMED: ({ id }) => asked(() => service.paid(id)),
  CANCELLED: ({ id }) => asked(() => service.post(`/v1/holds/${id}/cancel`, { reason: 'r' })),
  EXPIRED: (hold) => Promise.resolve(hold),
  HELD: (hold) => Promise.resolve(hold),
};

describe('F28, B22, B23: a history that was deleted', () => {
  it(
    'F28, B22, B23: claim, read, cancel, extend and payment answer as before, from the row; nothing is claimed twice, and a HELD hold gets its workflow again',
    { timeout: 240_000 },
    async () => {
      const { workflow, workflowService } = service.engine.holds.client;
      const sku = await service.product([20]);
      const make = async (end: string): Promise<Known> => {
        const [buyer, key] = [`buyer-${randomUUID()}`, randomUUID()];
        const fields = end === 'EXPIRED' ? { hold_seconds: 1 } : {};
        const hold = await service.hold({ [sku]: 1 }, { buyer, key, fields });
        await ends[end]!(hold);
        await service.becomes(hold.id, end);
        if (end !== 'HELD') await workflow.getHandle(hold.workflow_id).result();
        return { hold, sku, buyer, key, fields };
      };
      const closed = await Promise.all(['CONFIRMED', 'CANCELLED', 'EXPIRED'].map(make));
      // One hold for each message that adopts it.
      const adopting = ['claim', 'cancel', 'extend', 'payment'] as const;
      const held = await Promise.all(adopting.map(() => make('HELD')));

      const before = await Promise.all(closed.map(answersOf));
      for (const { hold } of [...closed, ...held])
        await workflowService.deleteWorkflowExecution({
          namespace: 'default',
          workflowExecution: { workflowId: hold.workflow_id },
        });
      for (const { hold } of [...closed, ...held])
        await until('the history is gone', () => isGone(hold.workflow_id), 90_000);

      expect(await Promise.all(closed.map(answersOf))).toEqual(before);
      const said = await Promise.all(
        adopting.map(async (kind, index) => (await kinds[kind](held[index]!)).status),
      );
      expect(said).toEqual([200, 200, 200, 200]);
      await service.becomes(held[1]!.hold.id, 'CANCELLED');
      await service.becomes(held[3]!.hold.id, 'CONFIRMED');
      for (const index of [0, 2]) {
        const { hold } = held[index]!;
        const { status } = await workflow.getHandle(hold.workflow_id).describe();
        expect(status.name).toBe('RUNNING');
        await kinds.cancel(held[index]!);
      }
      const reserves = (await service.ledger(sku)).filter((line) => line.startsWith('reserve'));
      expect(reserves).toHaveLength(7);
      // Two are sold: one before, and the one that was paid when its history was gone.
      expect(await service.counts(sku)).toEqual({ available: 18, held: 0, sold: 2 });
    },
  );

  async function isGone(workflowId: string): Promise<boolean> {
    const { workflow } = service.engine.holds.client;
    return workflow
      .getHandle(workflowId)
      .describe()
      .then(
        () => false,
        (error: Error) => error.name === 'WorkflowNotFoundError',
      );
  }
});
