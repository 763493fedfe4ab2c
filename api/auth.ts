import { hash as hashOf } from 'node:crypto';
import type { Database } from '../db/database.js';
import { readKey } from '../db/keys.js';
import type { ApiKey, Role } from '../db/keys.js';
import { Problem } from './errors.js';
import type { Clock } from './clock.js';

/** A revoked key works for as long as it is remembered, so not for long. */
const rememberKeysForMs = 2000;
const rememberAtMost = 1000;

/** Who may do what: the operator's key may do all that the shop's may. */
export class Keys {
  readonly #db: Database;
  readonly #known = new Map<string, { key: Promise<ApiKey | null>; until: number }>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** The key of the request, which has at least this role. Keys are never logged, nor kept: only their hash. */
  async authenticate(header: string | undefined, role: Role, clock: Clock): Promise<ApiKey> {
    const text = /^Bearer ([\x21-\x7e]{1,200})$/i.exec(header ?? '')?.[1];
    if (text === undefined) {
      throw new Problem('UNAUTHENTICATED', 'The request has no `Authorization: Bearer KEY`.');
    }
    const key = await this.#find(text, clock);
    if (key === null) throw new Problem('UNAUTHENTICATED', 'The API key is unknown or revoked.');
    if (role === 'operator' && key.role !== 'operator') {
      throw new Problem('FORBIDDEN', 'This route needs an operator key; this is a shop key.');
    }
    return key;
  }

  /** One read for all requests of a key that come at once, and none for some seconds after it. */
  #find(text: string, clock: Clock): Promise<ApiKey | null> {
    const hash = hashOf('sha256', text);
    const known = this.#known.get(hash);
    if (known !== undefined && known.until > performance.now()) return known.key;
    const key = readKey(this.#db, text, clock.left(1500));
    this.#known.delete(hash);
    if (this.#known.size >= rememberAtMost) this.#known.delete(this.#known.keys().next().value!);
    this.#known.set(hash, { key, until: performance.now() + rememberKeysForMs });
    // Only a valid key is remembered: a new one works at once, and a failed read is tried again.
    const forget = () => {
      if (this.#known.get(hash)?.key === key) this.#known.delete(hash);
    };
    key.then((found) => found === null && forget(), forget);
    return key;
  }
}
