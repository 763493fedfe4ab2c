/**
 * `npm run stock -- import FILE.csv` and `npm run stock -- export FILE.csv`: many bins at once, through
 * the API of the running `npm start`, or of TAHAN_API_URL with the operator key in TAHAN_API_KEY.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { Command } from 'commander';
import { dataFolder, findRunning } from './running.js';
import { exportStock, importFile } from './stockFile.js';
import type { ApiOf } from './stockFile.js';

const program = new Command('stock').description('the stock of many bins at once, as CSV');
const stop = new AbortController();
process.once('SIGINT', () => stop.abort());

interface ImportFlags {
  dryRun?: true;
  allOrNothing?: true;
  reason?: string;
  as?: string;
}

program
  .command('import')
  .argument('<file>', 'CSV with the columns sku,bin,action,quantity,expected,reason,reference')
  .option('--dry-run', 'say what would happen, and change nothing')
  .option('--all-or-nothing', 'change nothing when any row is refused; at most 10,000 rows')
  .option('--reason <text>', 'the reason of the rows that give none')
  .option('--as <name>', 'import a file once more that was imported before under another name')
  .description('restock, adjust, count or set the safety stock of the bins in a file')
  .action((file: string, flags: ImportFlags) =>
    against(async (api) => {
      const { refused } = await importFile(readFileSync(file), flags, api, {
        result: (line) => process.stdout.write(`${line}\n`),
        progress: (line) => process.stderr.write(`${line}\n`),
      });
      return refused === 0;
    }),
  );

program
  .command('export')
  .argument('[file]', 'where to; stdout when left out')
  .description('write every bin as CSV that can be edited and imported again')
  .action((file: string | undefined) =>
    against(async (api) => {
      const text = await exportStock(api, (line) => process.stderr.write(`${line}\n`));
      if (file === undefined) process.stdout.write(text);
      else writeFileSync(file, text);
      return true;
    }),
  );

async function against(work: (api: ApiOf) => Promise<boolean>): Promise<void> {
  try {
    process.exitCode = (await work(await theApi())) ? 0 : 1;
  } catch (error) {
    if (!stop.signal.aborted) console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}

async function theApi(): Promise<ApiOf> {
  const { TAHAN_API_URL: url, TAHAN_API_KEY: key } = process.env;
  if (url !== undefined && url !== '') {
    if (key === undefined || key === '') {
      throw new Error(
        'Set TAHAN_API_KEY to an operator key: npm run keys -- create operator NAME.',
      );
    }
    return { url: url.replace(/\/$/, ''), key, signal: stop.signal };
  }
  const running = await findRunning(dataFolder());
  if (running === undefined) {
    throw new Error(
      `Nothing runs on ${dataFolder()}. Start it in another terminal: npm start (TAHAN_DATA names other data), or set TAHAN_API_URL and TAHAN_API_KEY.`,
    );
  }
  return { url: running.apiUrl, key: running.secrets.operatorKey, signal: stop.signal };
}

await program.parseAsync();
