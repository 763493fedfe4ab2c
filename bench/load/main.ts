/**
 * The load generator, a process of its own: what it takes of the CPU is told apart from what the
 * bench does. Runs the plans that its parent sends, several at once, and ends with it.
 */
import { arrive } from './arrivals.js';
import { visit } from './buyer.js';
import { Connections } from './connections.js';
import type { Loaded, Order, Plan, Report, Visit } from './plan.js';

/** As a shop's backend has it. A buyer who finds none free waits for one, and that wait counts. */
const mostConnections = 512;

const running = new Map<number, AbortController>();

process.on('message', (order: Order) => {
  if ('stop' in order) return running.get(order.id)?.abort();
  const { id, plan } = order;
  const stopping = new AbortController();
  running.set(id, stopping);
  void run(plan, stopping.signal)
    .then(
      (loaded): Report => ({ id, loaded }),
      (error: unknown): Report => ({ id, error: String(error) }),
    )
    .then((report) => {
      running.delete(id);
      process.send!(report);
    });
});
process.once('disconnect', () => process.exit());

async function run(plan: Plan, stopped: AbortSignal): Promise<Loaded> {
  const visits: Visit[] = [];
  const answers: Record<string, number> = {};
  const told = (answer: string) => void (answers[answer] = (answers[answer] ?? 0) + 1);
  const shop = new Connections(plan.port, mostConnections);
  const before = process.cpuUsage();
  const begin = async (number: number, intendedMs: number) =>
    void visits.push(await visit(plan, { number, intendedMs }, shop, told));
  await arrive(plan.arrivals, begin, stopped);
  shop.close();
  const { user, system } = process.cpuUsage(before);
  return { visits, answers, cpuSeconds: (user + system) / 1e6 };
}
