import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { holderOf, takeLock } from '../../cli/lock.mjs';
import { root } from '../../cli/root.js';

type Child = ChildProcessByStdio<Writable, Readable, null>;

const lockModule = pathToFileURL(join(root, 'cli', 'lock.mjs')).href;

describe('one launcher at a time per data folder', () => {
  let folder: string;
  let file: string;
  const children: Child[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tahan-lock-'));
    file = join(folder, 'launcher.lock');
  });
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    rmSync(folder, { recursive: true });
  });

  function run(script: string): Child {
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    children.push(child);
    return child;
  }

  /** What a child says next, line by line however it is cut; undefined when it has ended. */
  function said(child: Child): () => Promise<string | undefined> {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    return async () => (await lines.next()).value as string | undefined;
  }

  /** Another process that takes the lock and keeps it until it is killed. */
  async function holder(): Promise<Child> {
    const child = run(`import { takeLock } from ${JSON.stringify(lockModule)};
       console.log(takeLock(${JSON.stringify(file)}).held);
       setInterval(() => {}, 1000);`);
    expect(await said(child)()).toBe('true');
    return child;
  }

  it('a second one is told who holds the lock', async () => {
    const { pid } = await holder();
    expect(takeLock(file)).toEqual({ held: false, pid });
  });

  it('a lock that kill -9 left behind is taken over', async () => {
    const child = await holder();
    const dead = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await dead;
    expect(takeLock(file)).toMatchObject({ held: true, tookOver: true });
    expect(holderOf(file)).toBe(process.pid);
  });

  it('a pid that belongs to another process by now does not hold the lock', async () => {
    const { pid } = await holder();
    const { started } = JSON.parse(readFileSync(file, 'utf8')) as { started: string };
    writeFileSync(file, JSON.stringify({ pid: process.pid, started }));
    expect(pid).not.toBe(process.pid);
    expect(holderOf(file)).toBeUndefined();
    expect(takeLock(file)).toMatchObject({ held: true, tookOver: true });
  });

  it('a broken lock file is taken over', () => {
    writeFileSync(file, 'not json');
    expect(takeLock(file)).toMatchObject({ held: true, tookOver: true });
  });

  it('of twelve that find the same stale lock at once, one gets it', async () => {
    const script = `import { takeLock } from ${JSON.stringify(lockModule)};
      console.log('ready');
      process.stdin.on('data', () => console.log(takeLock(${JSON.stringify(file)}).held));
      process.stdin.once('end', () => process.exit());`;
    const takers = Array.from({ length: 12 }, () => run(script));
    const next = takers.map(said);
    const all = () => Promise.all(next.map((line) => line()));
    expect(new Set(await all())).toEqual(new Set(['ready']));
    for (let round = 0; round < 40; round += 1) {
      writeFileSync(file, JSON.stringify({ pid: 1, started: 'long ago' }));
      const answers = all();
      for (const taker of takers) taker.stdin.write('take it');
      // All of them live on until all have answered: a lock that was given up may rightly be taken.
      expect((await answers).sort()).toEqual([...Array<string>(11).fill('false'), 'true']);
    }
  });

  it('a released lock can be taken again, and releasing it twice frees nobody else', () => {
    const first = takeLock(file);
    if (!first.held) throw new Error('not held');
    first.release();
    expect(holderOf(file)).toBeUndefined();
    writeFileSync(file, JSON.stringify({ pid: 1, started: 'of another' }));
    first.release();
    expect(readFileSync(file, 'utf8')).toContain('of another');
  });
});
