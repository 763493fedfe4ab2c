/** The little of supertest that these tests use; the package brings no types. */
declare module 'supertest' {
  export interface Response {
    status: number;
    headers: Record<string, string>;
    text: string;
    body: unknown;
  }
  export interface Test extends Promise<Response> {
    set(name: string, value: string): Test;
    send(body: string | Buffer): Test;
    timeout(ms: number): Test;
    buffer(on: boolean): Test;
    parse(
      parser: (
        res: NodeJS.ReadableStream,
        done: (error: Error | null, body: string) => void,
      ) => void,
    ): Test;
    ok(accept: () => boolean): Test;
  }
  export default function request(
    url: string,
  ): Record<'get' | 'post' | 'put' | 'delete' | 'patch', (path: string) => Test>;
}
