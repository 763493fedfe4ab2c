import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pickPorts } from '../../cli/servers/ports.js';
import { startTemporal } from '../../cli/servers/temporal.js';
import type { Temporal } from '../../cli/servers/temporal.js';
import { findTemporal } from '../../cli/servers/temporalBinary.js';

/** A Temporal server of the test's own, whose workflows survive it, to be killed and started again. */
export interface OwnTemporal {
  address: string;
  start(): Promise<void>;
  /** kill -9: nothing is put in order. */
  kill(): Promise<void>;
  stop(): Promise<void>;
}

export async function ownTemporal(): Promise<OwnTemporal> {
  const folder = mkdtempSync(join(tmpdir(), 'tahan-test-temporal-'));
  chmodSync(folder, 0o711);
  const binary = await findTemporal({ say: () => undefined });
  const { temporal } = await pickPorts({ temporal: 0 });
  const port = temporal.number;
  let server: Temporal | undefined;
  const own: OwnTemporal = {
    address: `127.0.0.1:${port}`,
    async start() {
      const files = { dataFile: join(folder, 'data.db'), logFile: join(folder, 'temporal.log') };
      server = await startTemporal({ binary, port, ...files });
    },
    async kill() {
      if (!server) return;
      process.kill(server.pid, 'SIGKILL');
      await server.ended;
    },
    async stop() {
      await server?.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  await own.start();
  return own;
}
