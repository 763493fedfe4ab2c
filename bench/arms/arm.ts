/** What a load is put on: our system, or what it is compared with. */
export type Kind = 'ours' | 'no engine' | 'floor';

export interface Running {
  kind: Kind;
  port: number;
  /** A shop's key. */
  key: string;
  /** Of the payment service. */
  secret: string;
  /** Its processes, without the generator. */
  pids: Record<string, number>;
  /** Missing where there is no Temporal. */
  temporal?: { address: string; prefix: string };
  /** Only of the floor, which has no database: what its activities have answered. */
  counts(): Promise<FloorCounts>;
  stop(): Promise<void>;
}

/** Times are the wall clock's, in ms; 0 while there was none. */
export interface FloorCounts {
  claims: number;
  confirms: number;
  expiries: number;
  /** Of the holds that expired: the first end, and when the last one was answered. */
  firstDueMs: number;
  lastExpiredMs: number;
}

export interface ArmOptions {
  /** Of a Temporal of the user's own; without it each arm gets a fresh development server. */
  temporalAddress: string | undefined;
  say: (line: string) => void;
}
