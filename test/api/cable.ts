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
  /** Loses what is sent, both ways and without a word: a black hole. Names a direction to lose only that. */
  lose(what?: 'questions' | 'answers'): void;
  /** Whether something was lost since the last `plug`. */
  hasLost(): boolean;
  /** Every answer comes so much later: half of it on each way. */
  slow(roundTripMs: number): void;
  /** As good as new; what was sent to a frozen server arrives now, and what was lost has cost its connection. */
  plug(): Promise<void>;
  close(): Promise<void>;
}

export async function cable(target: { host: string; port: number }): Promise<Cable> {
  const sockets = new Set<Socket>();
  /** Connections on which something was lost; they end when the cable is whole again. */
  const torn = new Set<Socket>();
  const loses = { questions: false, answers: false };
  let frozen = false;
  let delayMs = 0;
  const server = createServer((near) => {
    const far = connect(target);
    for (const [one, other, what] of [
      [near, far, 'questions'],
      [far, near, 'answers'],
    ] as const) {
      const waiting: Buffer[] = [];
      sockets.add(one);
      one.on('data', (part) => {
        if (loses[what]) return void torn.add(near).add(far);
        if (delayMs === 0 && waiting.length === 0) return void other.write(part);
        // Whichever timer comes first takes the oldest: nothing overtakes, also after a plug.
        waiting.push(part);
        setTimeout(() => void (other.writable && other.write(waiting.shift()!)), delayMs);
      });
      one.on('error', () => {});
      one.on('close', () => {
        sockets.delete(one);
        if (loses[what]) torn.add(other);
        else other.destroy();
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
  const mend = () => {
    frozen = false;
    delayMs = 0;
    loses.questions = loses.answers = false;
    for (const one of torn) one.destroy();
    torn.clear();
  };
  const pull = async () => {
    mend();
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
    lose(what) {
      loses.questions = what !== 'answers';
      loses.answers = what !== 'questions';
    },
    hasLost: () => torn.size > 0,
    slow(roundTripMs) {
      delayMs = roundTripMs / 2;
    },
    async plug() {
      mend();
      for (const one of sockets) one.resume();
      if (!server.listening) await listen(port);
    },
    close: pull,
  };
}
