import { z } from 'zod';
import { ping } from '../db/openHolds.js';
import { ok, route } from './route.js';
import type { Holds } from '../workflows/contract.js';
import type { Route } from './route.js';
import { noQuery } from './schemas.js';

const live = z.object({ status: z.literal('live') }).meta({ id: 'Live' });
const ready = z
  .object({
    status: z.enum(['ready', 'degraded', 'not_ready']),
    postgres: z.enum(['ok', 'away']),
    temporal: z.enum(['ok', 'away']),
  })
  .meta({ id: 'Ready' });

/** For whoever runs this process: is it there, and can it be sent requests? */
export const healthRoutes: Route[] = [
  route({
    method: 'get',
    path: '/livez',
    summary: 'The process answers',
    role: 'none',
    query: noQuery,
    answers: { 200: { description: 'It does', schema: live } },
    codes: [],
    handle: () => Promise.resolve(ok({ status: 'live' })),
  }),
  route({
    method: 'get',
    path: '/readyz',
    summary: 'Postgres and Temporal answer',
    role: 'none',
    query: noQuery,
    answers: {
      200: {
        description: 'Ready; or degraded: without Temporal, reads and refusals go on',
        schema: ready,
      },
      503: { description: 'Not ready: Postgres is away', schema: ready },
    },
    codes: [],
    async handle(_call, { db, holds }) {
      const [postgres, temporal] = await Promise.all([
        ping(db, 2000).then(
          () => true,
          () => false,
        ),
        temporalAnswers(holds, 2000),
      ]);
      const said = { postgres: postgres ? 'ok' : 'away', temporal: temporal ? 'ok' : 'away' };
      // Sent away for Temporal's absence, every process would be, and with them the reads.
      if (!postgres) return { status: 503, body: { status: 'not_ready', ...said } };
      return ok({ status: temporal ? 'ready' : 'degraded', ...said });
    },
  }),
];

/** Against a timer of our own: an absent server keeps the client busy for longer than asked. */
async function temporalAnswers({ client }: Holds, withinMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), withinMs);
  });
  const asked = client
    .withDeadline(Date.now() + withinMs, () => client.workflowService.getSystemInfo({}))
    .then(
      () => true,
      () => false,
    );
  try {
    return await Promise.race([asked, late]);
  } finally {
    clearTimeout(timer);
  }
}
