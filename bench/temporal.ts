import { connect } from '../workflows/contract.js';
import type { Running } from './arms/arm.js';

/**
 * How many of an arm's holds failed, of all: their claim came after its deadline. Visibility is told a
 * little later than it happens, so it is asked until two answers agree.
 */
export async function shareTooLate({ temporal }: Running): Promise<number> {
  const { address, prefix } = temporal!;
  const server = connect({ address, namespace: 'default' });
  const count = async (query: string) => {
    const { count } = await server.client.workflow.count(
      `WorkflowType = 'hold' and TaskQueue = '${prefix}tahan-holds'${query}`,
    );
    return count;
  };
  try {
    let [all, failed] = [-1, 0];
    for (let tries = 0; tries < 20; tries += 1) {
      const now = await count('');
      if (now === all) break;
      all = now;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    failed = await count(` and ExecutionStatus = 'Failed'`);
    return all === 0 ? 0 : failed / all;
  } finally {
    await server.close();
  }
}
