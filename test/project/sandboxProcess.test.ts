import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, expect, it } from 'vitest';
import { signedHttp } from '../../activities/payments/signedHttp.js';
import { root } from '../../cli/root.js';
import { secretsIn } from '../../cli/secrets.js';
import { api, closeAll, never, read, refundOf, secret } from './sandboxed.js';

afterEach(closeAll);

const refundSecret = `whsec_${'R'.repeat(40)}`;

/** The process that `npm start` runs, with stdin as its parent's pipe. */
function sandbox(env: NodeJS.ProcessEnv) {
  const child = spawn(process.execPath, [join(root, 'dist', 'cli', 'sandbox', 'main.js')], {
    env: { PATH: process.env['PATH'], PORT: '0', TAHAN_EXIT_WITH_PARENT: '1', ...env },
  });
  let errors = '';
  child.stderr.on('data', (chunk) => (errors += String(chunk)));
  const ended = new Promise<{ code: number | null; errors: string }>((resolve) =>
    child.once('close', (code) => resolve({ code, errors })),
  );
  const ready = new Promise<string>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { ready, url } = JSON.parse(line) as { ready?: boolean; url?: string };
      if (ready) resolve(url!);
    });
  });
  return { child, ready, ended };
}

it('the sandbox is a process for demonstrations only, and without its settings it says which are missing', async () => {
  const { ended } = sandbox({ TAHAN_WEBHOOK_SECRETS: secret, TAHAN_API_URL: 'nowhere' });
  const { code, errors } = await ended;
  expect(code).toBe(2);
  for (const name of ['TAHAN_DEMO', 'TAHAN_REFUND_SECRET', 'TAHAN_API_URL'])
    expect(errors).toContain(name);
  expect(errors).not.toContain(secret.slice(6));
});

it('S1: it signs with the first webhook secret, checks refunds by their own, and ends with its parent; a killed one forgets nothing', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tahan-process-'));
  const server = await api();
  const env = {
    TAHAN_DEMO: '1',
    TAHAN_WEBHOOK_SECRETS: `${secret}, whsec_${'S'.repeat(40)}`,
    TAHAN_REFUND_SECRET: refundSecret,
    TAHAN_API_URL: server.url,
    TAHAN_SANDBOX_FILE: join(folder, 'sandbox.jsonl'),
  };
  const first = sandbox(env);
  const started = [first];
  try {
    const url = await first.ready;
    const { charges } = (await (
      await fetch(`${url}/charges`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ order_number: 'ORDER1' }),
      })
    ).json()) as { charges: { payment_id: string }[] };
    const request = refundOf(charges[0]!.payment_id);
    await expect(signedHttp({ url, secret }).refund(request, never)).rejects.toThrow('401');
    const made = await signedHttp({ url, secret: refundSecret }).refund(request, never);
    expect(made.outcome).toBe('EXECUTED');
    await expect.poll(() => server.heard.length).toBe(2);
    expect(server.heard.map((heard) => read(heard).data.order_number)).toEqual([
      'ORDER1',
      'ORDER1',
    ]);
    first.child.kill('SIGKILL');
    await first.ended;

    const second = sandbox(env);
    started.push(second);
    const again = signedHttp({ url: await second.ready, secret: refundSecret });
    expect(await again.findRefund(request, never)).toEqual(made);
    second.child.stdin.end();
    expect((await second.ended).code).toBe(0);
  } finally {
    for (const { child } of started) child.kill('SIGKILL');
    await Promise.all(started.map(({ ended }) => ended));
    rmSync(folder, { recursive: true, force: true });
  }
});

it('data of an older version keeps its keys and gets what it lacks, once', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tahan-secrets-'));
  try {
    const old = { shopKey: 'shop', operatorKey: 'operator', webhookSecret: secret };
    writeFileSync(join(folder, 'secrets.json'), JSON.stringify(old));
    const secrets = secretsIn(folder);
    expect(secrets).toEqual({
      ...old,
      refundSecret: expect.stringMatching(/^whsec_.{44}$/) as string,
    });
    expect(secretsIn(folder)).toEqual(secrets);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
