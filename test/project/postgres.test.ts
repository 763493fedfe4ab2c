import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { postgresAccount } from '../../cli/servers/account.js';
import { pickPorts } from '../../cli/servers/ports.js';
import { startPostgres, type Postgres } from '../../cli/servers/postgres.js';
import { embeddedPostgres } from '../../cli/servers/postgresBinaries.js';
import { createDatabase, serverAnswers } from '../../db/server.js';

describe('embedded Postgres after a kill -9', () => {
  let folder: string;
  let server: Postgres | undefined;
  const say = () => undefined;
  const account = postgresAccount(say);

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tahan-embedded-'));
    chmodSync(folder, 0o711);
  });
  afterEach(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function start(): Promise<Postgres> {
    const { port } = await pickPorts({ port: 0 });
    const binaries = embeddedPostgres(account, say);
    const home = join(folder, 'postgres');
    server = await startPostgres({
      binaries,
      account,
      home,
      port: port.number,
      durable: true,
      say,
    });
    return server;
  }

  async function killed(): Promise<{ pidFile: string }> {
    const first = await start();
    await createDatabase(first.url('postgres'), 'kept');
    process.kill(first.pid, 'SIGKILL');
    await first.ended;
    const pidFile = join(first.home, 'data', 'postmaster.pid');
    expect(existsSync(pidFile)).toBe(true);
    return { pidFile };
  }

  it('starts again on its data', async () => {
    await killed();
    const second = await start();
    expect(await serverAnswers(second.url('kept'))).toBe(true);
  });

  it('starts again when its old pid belongs to another process of its user by now', async () => {
    const { pidFile } = await killed();
    const stranger = spawn('sleep', ['60'], {
      ...(account && { uid: account.uid, gid: account.gid }),
      cwd: '/',
    });
    try {
      const [, ...rest] = readFileSync(pidFile, 'utf8').split('\n');
      writeFileSync(pidFile, [stranger.pid, ...rest].join('\n'));
      const second = await start();
      expect(await serverAnswers(second.url('kept'))).toBe(true);
    } finally {
      stranger.kill();
    }
  });

  it('listens on 127.0.0.1 only, and wants its password', async () => {
    const { url } = await start();
    const wrong = new URL(url('postgres'));
    wrong.password = 'wrong';
    expect(await serverAnswers(url('postgres'))).toBe(true);
    expect(await serverAnswers(wrong.href)).toBe(false);
    const elsewhere = new URL(url('postgres'));
    elsewhere.hostname = '127.0.0.2';
    expect(await serverAnswers(elsewhere.href)).toBe(false);
  });
});
