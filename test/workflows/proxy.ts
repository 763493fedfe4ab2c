import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

export interface Listening {
  address: string;
  port: number;
  close(): void;
}

/** Takes connections and never answers: a server that hangs. */
export function listenSilently(): Promise<Listening> {
  return listen(0, () => {});
}

/** Passes everything on to another server. */
export function forward(port: number, to: string): Promise<Listening> {
  const [host, toPort] = to.split(':');
  return listen(port, (socket) => {
    const upstream = connect(Number(toPort), host);
    upstream.on('error', () => socket.destroy());
    upstream.on('close', () => socket.destroy());
    socket.on('close', () => upstream.destroy());
    socket.pipe(upstream).pipe(socket);
  });
}

function listen(port: number, serve: (socket: Socket) => void): Promise<Listening> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    serve(socket);
  });
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => {
      const { port: bound } = server.address() as AddressInfo;
      resolve({
        address: `127.0.0.1:${bound}`,
        port: bound,
        close() {
          for (const socket of sockets) socket.destroy();
          server.close();
        },
      });
    });
  });
}
