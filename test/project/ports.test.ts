import { createServer, type AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { pickPorts } from '../../cli/servers/ports.js';

it('a usual port that is taken is replaced by a free one, and no two servers get the same', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => taken.once('listening', resolve));
  const { port } = taken.address() as AddressInfo;
  try {
    const ports = await pickPorts({ api: port, temporal: port, postgres: 0, temporalUi: 0 });
    expect(ports.api.usual).toBe(false);
    const numbers = Object.values(ports).map(({ number }) => number);
    expect(numbers).not.toContain(port);
    expect(new Set(numbers).size).toBe(4);
  } finally {
    await new Promise((resolve) => taken.close(resolve));
  }
  expect((await pickPorts({ api: port })).api).toEqual({ number: port, usual: true });
});
