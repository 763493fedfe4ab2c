/**
 * How much of a campaign is played: a short form in `npm test`, which still turns red for what it
 * protects, and all of it in `npm run test:chaos`, which plays every file that asks here.
 */
export function length(short: number, full: number): number {
  return process.env['TAHAN_CHAOS'] ? full : short;
}
