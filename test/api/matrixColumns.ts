import {
  backendsAreKilled,
  isSlow,
  isStopped,
  losesAll,
  refuses,
  workerIsAway,
} from './matrixRun.js';
import type { Trouble } from './matrixRun.js';
import type { Group } from './matrixTable.js';

export type Column = string;

interface Told {
  trouble: Trouble;
  /** Every status and code that a row of the group may answer with. */
  expected: Record<Group, string[]>;
  /** Bounds that are promised beyond the 5 s of every answer. */
  slowestMs?: Partial<Record<Group, number>>;
  backWithinMs?: number;
}

const away = '503 DATABASE_UNAVAILABLE';
const late = '503 CHECKOUT_TIMED_OUT';
const unavailable = '503 WORKFLOW_UNAVAILABLE';
const settled = '409 PAYMENT_NOT_IN_REVIEW';

/** Nothing can be said without Postgres, and a first checkout is told so in under 2 s. */
const withoutPostgres: Omit<Told, 'trouble'> = {
  expected: {
    'first checkout': [away],
    'repeat of a key': [away],
    read: [away],
    'cancel, extend, release, return': [away],
    'payment event': [away],
    'decision about a payment': [away],
    'change of stock': [away],
    'change of a cart': [away],
    'livez, openapi': ['200'],
    readyz: ['503'],
  },
  slowestMs: { 'first checkout': 2000 },
};

/** Without Temporal what needs no workflow goes on. */
const withoutTemporal: Told['expected'] = {
  'first checkout': [late],
  'repeat of a key': ['200'],
  read: ['200'],
  'cancel, extend, release, return': [unavailable],
  'payment event': [unavailable],
  'decision about a payment': [unavailable],
  'change of stock': ['200'],
  'change of a cart': ['200'],
  'livez, openapi': ['200'],
  readyz: ['200'],
};

export const columns: Record<Column, Told> = {
  'Postgres refuses': { trouble: refuses('postgres'), ...withoutPostgres },
  'Postgres is stopped': { trouble: isStopped('postgres'), ...withoutPostgres },
  'Postgres loses everything': { trouble: losesAll('postgres'), ...withoutPostgres },
  'Postgres takes 2 s more': {
    trouble: isSlow('postgres'),
    ...withoutPostgres,
    expected: {
      ...withoutPostgres.expected,
      // A connection that was open already may be just quick enough, where the key is known.
      read: ['200', away],
      'repeat of a key': ['200', away],
      'payment event': ['200', away],
      'change of stock': ['200', away],
      'change of a cart': ['200', away],
    },
  },
  'Postgres connections are killed': {
    trouble: backendsAreKilled(),
    expected: {
      'first checkout': ['201', '202', away, late],
      'repeat of a key': ['200', away],
      read: ['200', away],
      'cancel, extend, release, return': ['200', away, unavailable],
      'payment event': ['200', away],
      'decision about a payment': [settled, away, unavailable],
      'change of stock': ['200', away],
      'change of a cart': ['200', away],
      'livez, openapi': ['200'],
      readyz: ['200', '503'],
    },
  },
  'Temporal refuses': {
    trouble: refuses('temporal'),
    expected: { ...withoutTemporal, 'first checkout': [unavailable] },
    slowestMs: { 'first checkout': 2500 },
    // Temporal's SDK pauses its polls for up to 12 s, and can't be told otherwise.
    backWithinMs: 16_000,
  },
  'Temporal is stopped': { trouble: isStopped('temporal'), expected: withoutTemporal },
  'Temporal loses everything': { trouble: losesAll('temporal'), expected: withoutTemporal },
  'Temporal takes 2 s more': {
    trouble: isSlow('temporal'),
    expected: {
      ...withoutTemporal,
      'first checkout': ['201', late],
      'cancel, extend, release, return': ['200', unavailable],
      'payment event': ['200', unavailable],
      'decision about a payment': [settled, unavailable],
    },
  },
  'the worker is away': {
    trouble: workerIsAway,
    expected: { ...withoutTemporal, 'payment event': ['200'] },
  },
};

/** Side by side, each with processes and a database of its own; one after the other within. */
export const lanes: { own: boolean; names: Column[] }[] = [
  {
    own: false,
    names: [
      'Postgres refuses',
      'Postgres loses everything',
      'Postgres takes 2 s more',
      'Postgres connections are killed',
    ],
  },
  {
    own: false,
    names: ['Temporal refuses', 'Temporal loses everything', 'Temporal takes 2 s more'],
  },
  { own: true, names: ['Postgres is stopped', 'Temporal is stopped', 'the worker is away'] },
];
