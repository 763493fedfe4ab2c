import { conflicts } from '../../db/database.js';
import { audit } from '../db/audit.js';
import { checkAnswers } from './answers.js';
import { readBooks } from './books.js';
import { dice } from './dice.js';
import { Lane, prepare } from './lane.js';
import type { Call } from './lane.js';
import { play } from './play.js';
import { Moments } from './refusals.js';
import { changesOf, replay } from './replay.js';
import { drawWorld, openWorld } from './world.js';

export interface Run {
  seeds: number[];
  lanes?: number;
  /** Stop at the first violation. */
  untilWrong?: boolean;
  /** No new history begins later, by Date.now(). */
  until?: number;
}

export interface Result {
  histories: number;
  calls: number;
  claims: number;
  refused: number;
  seconds: number;
  /** Payments that were stamped within 3 ms of their hold's end. */
  atTheEnd: number;
  /** Payments that were seen waiting for the hold's row when its end passed. */
  waited: number;
  conflicts: number;
  outcomes: Record<string, number>;
  /** Without a seed: the audit of the whole database. */
  failures: { seed?: number; violations: string[] }[];
}

/** Plays the histories of the seeds on a migrated database, several at once, and checks each one. */
export async function playHistories(
  url: string,
  { seeds, lanes = 3, untilWrong, until }: Run,
): Promise<Result> {
  const began = Date.now();
  const conflictsBefore = conflicts.repeated;
  const result: Result = {
    histories: 0,
    calls: 0,
    claims: 0,
    refused: 0,
    seconds: 0,
    atTheEnd: 0,
    waited: 0,
    conflicts: 0,
    outcomes: {},
    failures: [],
  };
  await prepare(url, lanes);
  let next = 0;
  const stop = () =>
    next >= seeds.length ||
    (untilWrong && result.failures.length > 0) ||
    (until && Date.now() > until);
  const work = async (number: number) => {
    const lane = new Lane(url, number);
    try {
      while (!stop()) {
        const index = next++;
        const seed = seeds[index]!;
        const conflictsAtStart = conflicts.repeated;
        const { calls, violations } = await oneHistory(lane, seed, nameOf(seeds, index));
        if (conflicts.repeated > conflictsAtStart) {
          violations.push(
            'a deadlock or a serialization failure (of this history or one beside it)',
          );
        }
        result.histories += 1;
        if (violations.length > 0) result.failures.push({ seed, violations });
        tally(result, calls);
      }
    } finally {
      await lane.close();
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, index) => work(index + 1)));
  const broken = await audit(url);
  if (Object.keys(broken).length > 0)
    result.failures.push({ violations: [JSON.stringify(broken)] });
  result.conflicts = conflicts.repeated - conflictsBefore;
  result.seconds = (Date.now() - began) / 1000;
  return result;
}

/** Of the seed alone, so that a failing history meets the same ids again; a repeated seed needs names apart. */
function nameOf(seeds: number[], index: number): string {
  const seed = seeds[index]!;
  return seeds.indexOf(seed) === index ? `s${seed}` : `s${seed}r${index}`;
}

async function oneHistory(
  lane: Lane,
  seed: number,
  name: string,
): Promise<{ calls: Call[]; violations: string[] }> {
  const world = drawWorld(name, dice(seed));
  await openWorld(lane, world);
  await play(lane, world, seed);
  const calls = await lane.end();
  const books = await readBooks(lane, world);
  const changes = changesOf(books, calls);
  const violations = replay(world, books, changes);
  // Without a sequential order, or with a hold that nothing made, the rest would only add noise.
  const made = books.holds.every(
    ({ id, status }) => status === 'REJECTED' || changes.has(`claim ${id}`),
  );
  if (made)
    violations.push(...checkAnswers(world, books, calls, new Moments(world, books, changes)));
  else violations.push('a hold without movements');
  for (const call of calls) {
    if (call.ask.what !== 'pay' || call.answer?.outcome !== 'RECORDED') continue;
    const { event } = call.ask;
    const payment = books.payments.find(({ id }) => id === event.paymentId);
    const hold = books.holds.find(({ id }) => id === event.holdId);
    if (payment?.receivedAt && hold?.endsAt && Math.abs(payment.receivedAt - hold.endsAt) <= 3000) {
      call.answer['atTheEnd'] = true;
    }
  }
  return { calls, violations };
}

function tally(result: Result, calls: Call[]): void {
  result.calls += calls.length;
  for (const { ask, answer, fault, mustBeInTime } of calls) {
    const name = `${ask.what} ${answer?.outcome ?? 'fault'}`;
    if (fault || answer) result.outcomes[name] = (result.outcomes[name] ?? 0) + 1;
    if (answer?.['atTheEnd']) result.atTheEnd += 1;
    if (mustBeInTime) result.waited += 1;
    if (ask.what !== 'claim' || ask.drain || !answer) continue;
    if (/^(HELD|INSUFFICIENT_STOCK|BUYER_LIMIT)$/.test(answer.outcome)) result.claims += 1;
    if (/^(INSUFFICIENT_STOCK|BUYER_LIMIT)$/.test(answer.outcome)) result.refused += 1;
  }
}
