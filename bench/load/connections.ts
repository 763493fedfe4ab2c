import { connect } from 'node:net';
import type { Socket } from 'node:net';

export interface Answer {
  /** 0: no answer. */
  status: number;
  head: string;
  body: string;
}

const noAnswer: Answer = { status: 0, head: '', body: '' };

interface Waiting {
  request: string;
  resolve: (answer: Answer) => void;
  /** Whether it was sent on a connection that had served before. */
  reused: boolean;
}

/**
 * Keep-alive connections to one port, at most so many; a request that finds none free waits. Written
 * out on bare sockets, and only for what the servers of a bench answer, a length with every body:
 * `node:http`'s client takes several times the CPU, of cores that it shares with what is measured.
 */
export class Connections {
  readonly #port: number;
  readonly #most: number;
  readonly #free: Socket[] = [];
  readonly #all = new Set<Socket>();
  readonly #queue: Waiting[] = [];

  constructor(port: number, most: number) {
    this.#port = port;
    this.#most = most;
  }

  /** Sends the request as it stands and answers with what came back. Never rejects. */
  ask(request: string): Promise<Answer> {
    return new Promise((resolve) => {
      this.#queue.push({ request, resolve, reused: false });
      this.#next();
    });
  }

  close(): void {
    for (const socket of this.#all) socket.destroy();
  }

  #next(): void {
    while (this.#queue.length > 0) {
      const socket = this.#free.pop();
      if (socket === undefined && this.#all.size >= this.#most) return;
      const waiting = this.#queue.shift()!;
      waiting.reused = socket !== undefined;
      this.#send(socket ?? this.#open(), waiting);
    }
  }

  #open(): Socket {
    const socket = connect({ port: this.#port, host: '127.0.0.1', noDelay: true });
    this.#all.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => {
      this.#all.delete(socket);
      const index = this.#free.indexOf(socket);
      if (index >= 0) this.#free.splice(index, 1);
      this.#next();
    });
    return socket;
  }

  #send(socket: Socket, waiting: Waiting): void {
    let read: Buffer | undefined;
    const onData = (chunk: Buffer) => {
      read = read === undefined ? chunk : Buffer.concat([read, chunk]);
      const answer = parse(read);
      if (answer === undefined) return;
      socket.off('data', onData).off('close', onClose);
      waiting.resolve(answer);
      if (/\r\nconnection: close/i.test(answer.head)) socket.destroy();
      else this.#free.push(socket);
      this.#next();
    };
    const onClose = () => {
      socket.off('data', onData);
      // The server had closed an idle connection: nothing was read, so it is asked on another one.
      if (read === undefined && waiting.reused) this.#queue.unshift(waiting);
      else waiting.resolve(noAnswer);
      this.#next();
    };
    socket.on('data', onData).once('close', onClose);
    socket.write(waiting.request);
  }
}

/** Undefined while the answer is not complete. */
function parse(read: Buffer): Answer | undefined {
  const headEnd = read.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = read.toString('latin1', 0, headEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? NaN);
  if (Number.isNaN(length)) throw new Error(`an answer without a length: ${head}`);
  const bodyEnd = headEnd + 4 + length;
  if (read.length < bodyEnd) return undefined;
  return {
    status: Number(head.slice(9, 12)),
    head,
    body: read.toString('utf8', headEnd + 4, bodyEnd),
  };
}
