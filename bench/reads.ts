import { fork } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { putBin } from '../db/bin.js';
import { openDatabase } from '../db/database.js';
import { addKey, newKey } from '../db/keys.js';
import { putProduct } from '../db/product.js';
import { restock } from '../db/restock.js';
import { onFreshDatabase } from './database.js';
import { atLeast, closedLoop, interleave } from './measure.js';
import type { Arm, Options, Run } from './measure.js';

const clients = 16;
const arms = { ours: 'GET availability', bare: 'a bare route with the same query' };

/** Reads of one product's availability over HTTP, against an Express route that runs the same query and does nothing else. */
export async function reads(options: Options): Promise<Run> {
  const measured = await interleave([arm('api'), arm('bare')], options);
  const { samples } = measured;
  return {
    bench: 'reads',
    settings: { clients, rounds: options.rounds, seconds: options.seconds },
    ...measured,
    judged: [
      atLeast(0.8, {
        bench: 'reads',
        metric: 'reads a second',
        ours: samples[arms.ours]!,
        baseline: samples[arms.bare]!,
        baselineName: arms.bare,
      }),
    ],
    left_out: [],
  };
}

function arm(kind: 'api' | 'bare'): Arm {
  return {
    name: kind === 'api' ? arms.ours : arms.bare,
    run: (seconds) =>
      onFreshDatabase(async (url) => {
        const key = await prepare(url);
        const server = fork(new URL('server.ts', import.meta.url), [kind, url], {
          execArgv: ['--import', 'tsx'],
        });
        try {
          const [{ port }] = (await once(server, 'message')) as [{ port: number }];
          const agent = new Agent({ keepAlive: true, maxSockets: clients });
          const read = () => ask(port, agent, key);
          const wrong = new Set<string>();
          // The first second is the compiler's.
          await closedLoop(clients, 1, async () => void (await read()));
          const rate = await closedLoop(clients, seconds, async () => {
            const answer = await read();
            if (answer !== '200 7') wrong.add(answer);
          });
          agent.destroy();
          return { rate, violations: [...wrong].map((answer) => `answered ${answer}, not 200 7`) };
        } finally {
          server.kill();
          if (server.exitCode === null) await once(server, 'exit');
        }
      }),
  };
}

async function prepare(url: string): Promise<string> {
  const db = openDatabase({ url });
  try {
    const by = { actor: 'bench', reason: 'bench' };
    await putProduct(db, 'HOT', {}, by);
    for (const bin of ['a', 'b', 'c']) {
      await putBin(db, { sku: 'HOT', code: bin }, by);
      const quantity = bin === 'a' ? 5 : 1;
      await restock(db, { sku: 'HOT', bin, quantity, requestId: 'stock', reference: null, ...by });
    }
    const key = newKey();
    await addKey(db, 'shop', 'bench', key);
    return key;
  } finally {
    await db.close();
  }
}

/** Status and the sellable units that the answer names. */
function ask(port: number, agent: Agent, key: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${key}` };
    const path = '/v1/products/HOT/availability';
    get({ host: '127.0.0.1', port, path, agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk));
      response.once('end', () => {
        const { sellable } = JSON.parse(text) as { sellable?: number };
        resolve(`${response.statusCode} ${sellable}`);
      });
    }).once('error', reject);
  });
}
