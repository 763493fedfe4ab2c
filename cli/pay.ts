/**
 * `npm run pay -- <hold or order>`: pays through the sandbox of the running `npm start`, and lets go
 * wrong what is asked for. It finds only a demonstration: no real provider has such a door.
 */
import { Command, InvalidArgumentError, Option } from 'commander';
import { pay } from './payment.js';
import { dataFolder, findRunning } from './running.js';

const program = new Command('pay')
  .description('pay for a hold or an order through the payment sandbox of the running npm start')
  .argument('<hold-or-order>', 'the id of a hold, or the number of an order')
  .option('--late', 'the webhook comes when the hold is over')
  .option('--twice', 'two payments, each with an id of its own')
  .option('--wrong-amount', 'one minor unit too little')
  .option('--wrong-currency', 'another currency')
  .addOption(
    new Option('--fail-first', 'payment.failed, then payment.succeeded').conflicts('outOfOrder'),
  )
  .option('--duplicate', 'the same event five times at the same moment')
  .option('--out-of-order', 'payment.failed comes after the payment.succeeded that followed it')
  .option('--bad-signature', 'the first try is badly signed')
  .option('--slow', 'the webhook trickles in')
  .option('--amount <minor>', 'so many minor units', amount)
  .option('--currency <code>', 'in this currency (ISO 4217)', currency)
  .option('--wait', 'wait for the end of the payment however long it takes; else 30 s')
  .parse();

interface Flags {
  late?: true;
  twice?: true;
  wrongAmount?: true;
  wrongCurrency?: true;
  failFirst?: true;
  duplicate?: true;
  outOfOrder?: true;
  badSignature?: true;
  slow?: true;
  amount?: number;
  currency?: string;
  wait?: true;
}

const flags = program.opts<Flags>();
const stop = new AbortController();
process.once('SIGINT', () => stop.abort());

try {
  process.exitCode = await main(program.args[0]!);
} catch (error) {
  if (!stop.signal.aborted) console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function main(name: string): Promise<number> {
  const folder = dataFolder();
  const running = await findRunning(folder);
  if (running === undefined) {
    console.error(
      `Nothing runs on ${folder}. Start it in another terminal: npm start (TAHAN_DATA names other data).`,
    );
    return 1;
  }
  const ended = await pay(
    name,
    {
      late: flags.late,
      payments: flags.twice && 2,
      wrong_amount: flags.wrongAmount,
      wrong_currency: flags.wrongCurrency,
      story: flags.failFirst ? 'fail_then_succeed' : flags.outOfOrder && 'succeed_then_fail',
      copies: flags.duplicate && 5,
      bad_signature: flags.badSignature && 'once',
      slow_ms: flags.slow && 3000,
      amount_minor: flags.amount,
      currency: flags.currency,
    },
    running,
    (what, text) => console.log(`  ${what.padEnd(8)} ${text}`),
    { waitMs: flags.wait ? Infinity : 30_000, signal: stop.signal },
  );
  return ended || flags.late ? 0 : 1;
}

function amount(text: string): number {
  if (/^[1-9]\d{0,11}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of minor units, such as 2500.');
}

function currency(text: string): string {
  if (/^[A-Z]{3}$/.test(text)) return text;
  throw new InvalidArgumentError('It must be three upper-case letters, such as EUR.');
}
