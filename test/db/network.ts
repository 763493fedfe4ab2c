import { createServer, connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

/** A network between the app and Postgres that can lose everything without a word. */
export async function network(url: string) {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  const lost = { there: false, back: false };
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
    near.on('data', (data) => void (lost.there || far.write(data)));
    far.on('data', (data) => void (lost.back || near.write(data)));
    near.on('close', () => lost.there || far.destroy());
    far.on('close', () => lost.back || near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const through = new URL(url);
  [through.hostname, through.port] = ['127.0.0.1', String((server.address() as AddressInfo).port)];
  return {
    url: through.href,
    lost,
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
