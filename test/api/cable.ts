import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

/** A connection to a server that can be pulled out, and put back. */
export interface Cable {
  /** 127.0.0.1:PORT, in place of the server's own. */
  address: string;
  /** Ends every connection and refuses new ones: the server is gone. */
  pull(): Promise<void>;
  /** Takes what is sent and passes nothing on, neither way: the server hangs. */
  freeze(): void;
  /** As good as new; what was sent to a frozen server arrives now. */
  plug(): Promise<void>;
  close(): Promise<void>;
}

export async function cable(target: { host: string; port: number }): Promise<Cable> {
  const sockets = new Set<Socket>();
  let frozen = false;
  const server = createServer((near) => {
    const far = connect(target);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on('data', (part) => other.write(part));
      one.on('error', () => {});
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
    if (frozen) for (const one of [near, far]) one.pause();
  });
  const listen = (port: number) =>
    new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', resolve);
    });
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const pull = async () => {
    frozen = false;
    for (const one of sockets) one.destroy();
    if (server.listening) await new Promise((closed) => server.close(closed));
  };
  return {
    address: `127.0.0.1:${port}`,
    pull,
    freeze() {
      frozen = true;
      for (const one of sockets) one.pause();
    },
    async plug() {
      frozen = false;
      for (const one of sockets) one.resume();
      if (!server.listening) await listen(port);
    },
    close: pull,
  };
}
