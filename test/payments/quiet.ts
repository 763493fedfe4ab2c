import pg from 'pg';
import { until } from '../../cli/servers/until.js';
import { connect, taskQueues } from '../../workflows/contract.js';
import { taken } from './judge.js';
import type { Run, World } from './play.js';

/**
 * Nothing moves any more: first without help, then after both were killed once more, since what was
 * stored, but neither passed on nor told again, is found when they start.
 */
export async function quiet(
  { sandbox, prefix, api, worker }: Pick<World, 'sandbox' | 'prefix' | 'api' | 'worker'>,
  run: Run,
): Promise<void> {
  const end = performance.now() + run.patienceMs;
  const left = () => Math.max(1000, end - performance.now());
  const database = new pg.Client({ connectionString: run.databaseUrl });
  await database.connect();
  const temporal = connect({ address: run.temporalAddress });
  const queues = Object.values(taskQueues(prefix)).map((name) => `'${name}'`);
  const query = `ExecutionStatus = 'Running' AND TaskQueue IN (${queues.join()})`;
  /** Rows that must still change, and running workflows; a review waits for an operator, not for us. */
  async function unfinished(which: 'taken' | 'all'): Promise<string[]> {
    const ids = [...sandbox.book.charges.keys()].filter(
      (id) => which === 'all' || taken(sandbox.book, id),
    );
    const { rows } = await database.query<{ what: string }>(stillOpen, [ids]);
    const { rows: reviews } = await database.query(inReview);
    const running = (await temporal.client.workflow.count(query)).count - reviews.length;
    return [...rows.map(({ what }) => what), ...(running > 0 ? [`${running} workflows run`] : [])];
  }
  async function wait(which: 'taken' | 'all'): Promise<void> {
    let found: string[] = [];
    if (await until(async () => (found = await unfinished(which)).length === 0, left(), 500))
      return;
    throw new Error(`${found.length} are unfinished:\n${found.slice(0, 20).join('\n')}`);
  }
  try {
    const waiting = () =>
      [...sandbox.book.events.values()].some(({ state }) => state === 'waiting');
    if (!(await until(() => !waiting(), left(), 200)))
      throw new Error('The provider still has webhooks to send');
    await wait('taken');
    await Promise.all([api.killAndStart(), worker.killAndStart()]);
    await wait('all');
  } finally {
    await database.end();
    await temporal.close();
  }
}

const stillOpen = `
  select 'payment ' || payment_id || ': ' || coalesce(settlement, 'no settlement') as what
  from tahan.payments where payment_id = any ($1) and status = 'succeeded'
    and (settlement is null or settlement = 'REFUND_DUE')
  union all select 'hold ' || id || ': ' || status from tahan.holds where status = 'HELD'`;
const inReview = `select from tahan.payments where settlement = 'NEEDS_REVIEW'`;
