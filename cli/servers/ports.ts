import { createServer, type Server } from 'node:net';

/** Where the servers usually listen. 5433: the usual 5432 often belongs to a system Postgres. */
export const usualPorts = {
  api: 3000,
  sandbox: 3010,
  temporalUi: 8233,
  temporal: 7233,
  postgres: 5433,
} as const;

export interface Port {
  number: number;
  /** False when the usual port was taken and any free one stands in for it. */
  usual: boolean;
}

/**
 * Picks a free port for each name: the wanted one if free (0 asks for any), else any free one. All
 * are held until the last is picked, so that no two names get the same.
 */
export async function pickPorts<Name extends string>(
  wanted: Record<Name, number>,
): Promise<Record<Name, Port>> {
  const names = Object.keys(wanted) as Name[];
  const held: Server[] = [];
  const picked = {} as Record<Name, Port>;
  try {
    for (const name of names) {
      const first = wanted[name] === 0 ? undefined : await hold(wanted[name]);
      const server = first ?? (await holdAny());
      if (!server) throw new Error('No free port on 127.0.0.1.');
      held.push(server);
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('No port was bound.');
      picked[name] = { number: address.port, usual: first !== undefined };
    }
  } finally {
    await Promise.all(held.map((server) => new Promise((closed) => server.close(closed))));
  }
  return picked;
}

/**
 * Any free port, from below those that systems give to outgoing connections: one of these was taken by a
 * connection between this look and the server's start.
 */
async function holdAny(): Promise<Server | undefined> {
  for (let tries = 0; tries < 50; tries += 1) {
    const server = await hold(20_000 + Math.floor(Math.random() * 10_000));
    if (server !== undefined) return server;
  }
  return hold(0);
}

/** Listens on the port; undefined when somebody else does. */
function hold(port: number): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(undefined);
      else reject(error);
    });
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => resolve(server));
  });
}
