import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { root } from '../../cli/root.js';
import { until } from '../../cli/servers/until.js';
import { freshDatabase, type TestDatabase } from '../setup/database.js';

/** A platform starts these with npm and stops them with SIGTERM to npm; both must reach the process. */
describe(
  'npm run start:api and start:worker, as processes of their own',
  { timeout: 90_000 },
  () => {
    let npm: ChildProcess | undefined;
    let database: TestDatabase | undefined;

    afterEach(async () => {
      npm?.kill('SIGKILL');
      await database?.drop();
    });

    async function run(script: string) {
      database = await freshDatabase();
      const child = spawn('npm', ['run', '--silent', script], {
        cwd: root,
        env: {
          ...process.env,
          DATABASE_URL: database.url,
          TEMPORAL_ADDRESS: inject('temporalAddress'),
          TAHAN_TASK_QUEUE_PREFIX: `${script}-${process.pid}-`,
          TAHAN_WORKFLOW_BUNDLE: inject('bundlePath'),
          TAHAN_WEBHOOK_SECRETS: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
          PORT: '0',
        },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      npm = child;
      const lines: Record<string, unknown>[] = [];
      createInterface({ input: child.stdout }).on('line', (line) => {
        if (line.startsWith('{')) lines.push(JSON.parse(line) as Record<string, unknown>);
      });
      const ended = new Promise<{ code: number | null }>((resolve) => {
        child.once('close', (code) => resolve({ code }));
      });
      let isOver = false;
      void ended.then(() => (isOver = true));
      await until(() => isOver || lines.some(({ ready }) => ready === true), 60_000);
      return { ready: lines.find(({ ready }) => ready === true), ended, child };
    }

    it('the API answers, and SIGTERM to npm ends it in order', async () => {
      const { ready, ended, child } = await run('start:api');
      const url = `${String(ready?.['url'])}/livez`;
      expect((await fetch(url)).status).toBe(200);
      child.kill('SIGTERM');
      // 'close' comes when nobody holds its stdout any more: the API itself has ended, not only npm.
      expect(await ended).toEqual({ code: 0 });
      await expect(fetch(url)).rejects.toThrow();
    });

    it('the worker takes tasks, and SIGTERM to npm ends it in order', async () => {
      const { ready, ended, child } = await run('start:worker');
      expect(ready).toBeDefined();
      child.kill('SIGTERM');
      expect(await ended).toEqual({ code: 0 });
    });
  },
);
