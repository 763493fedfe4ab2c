import { Agent, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { sharedService, statuses } from './service.js';

const service = sharedService({ claimsInFlight: 1000 });
const agent = new Agent({ keepAlive: true, maxSockets: 200 });

interface Said {
  status: number;
  code?: string;
  retryAfter: number;
  at: number;
}

/** Like service.attempt, some ten times cheaper. */
function attempt(sku: string, buyer: string): Promise<Said> {
  const { hostname, port } = new URL(service.url());
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${service.shopKey}`,
      'content-type': 'application/json',
      'idempotency-key': 'flash',
    };
    const call = request({ hostname, port, path: '/v1/holds', method: 'POST', agent, headers });
    call.once('error', reject).once('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.once('end', () => {
        const { code } = JSON.parse(text) as { code?: string };
        const retryAfter = Number(response.headers['retry-after'] ?? 0);
        const status = response.statusCode!;
        resolve({ status, retryAfter, at: Date.now(), ...(code !== undefined && { code }) });
      });
    });
    call.end(JSON.stringify({ buyer_id: buyer, lines: [{ sku, quantity: 1 }] }));
  });
}

/** A buyer who does what he is told, until it is decided; with all that he heard. */
async function buy(sku: string, buyer: string): Promise<Said[]> {
  const heard: Said[] = [];
  for (;;) {
    const said = await attempt(sku, buyer);
    heard.push(said);
    if (said.status !== 503 && said.status !== 202) return heard;
    await new Promise((again) => setTimeout(again, said.retryAfter * 1000));
  }
}

describe('a flash sale', { timeout: 120_000 }, () => {
  it('R14, B01, B03: of 2,000 buyers at once exactly 50 get the 50 units, and nobody is told that it is sold out while a unit is free; fewer than 1 claim in 100 comes too late', async () => {
    const sku = await service.product([50]);
    const heard = await Promise.all(
      Array.from({ length: 2000 }, (_, index) => buy(sku, `buyer-${index}`)),
    );
    expect(statuses(heard.map((all) => all.at(-1)!))).toEqual({ 201: 50, 409: 1950 });
    expect(await service.counts(sku)).toEqual({ available: 0, held: 50, sold: 0 });
    const others = heard.flat().filter(({ status }) => status >= 500);
    expect(others.filter(({ code }) => code !== 'SALE_BUSY')).toEqual([]);

    const [last] = await service.shop.query<{ at: Date }>(
      `select max(created_at) as at from tahan.movements where sku = $1 and type = 'reserve'`,
      [sku],
    );
    const refused = heard.map((all) => all.at(-1)!).filter(({ status }) => status === 409);
    const first = Math.min(...refused.map(({ at }) => at));
    expect(first).toBeGreaterThanOrEqual(last!.at.getTime());

    const { workflow } = service.engine.holds.client;
    const runs = { held: 0, failed: 0 };
    for await (const { status } of workflow.list({ query: `HoldSkus = '${sku}'` }))
      runs[status.name === 'FAILED' ? 'failed' : 'held'] += 1;
    expect(runs.failed).toBeLessThanOrEqual(0.01 * (runs.held + runs.failed));
  });
});
