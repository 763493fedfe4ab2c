/** Numbers from a seed, so that a failing history can be asked for again. */
export interface Dice {
  /** In [0, 1). */
  roll(): number;
  /** A whole number from..to, both included. */
  between(from: number, to: number): number;
  pick<T>(list: readonly T[]): T;
  chance(probability: number): boolean;
}

/** mulberry32 over a seed and a stream: each slot of a history has a stream of its own, so that what it does does not depend on which worker came first. */
export function dice(seed: number, stream = 0): Dice {
  let state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
  const roll = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const between = (from: number, to: number) => from + Math.floor(roll() * (to - from + 1));
  return {
    roll,
    between,
    pick: (list) => list[between(0, list.length - 1)]!,
    chance: (probability) => roll() < probability,
  };
}
