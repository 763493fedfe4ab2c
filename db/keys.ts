import { createHash, randomBytes } from 'node:crypto';
import type { Database } from './database.js';

export type Role = 'shop' | 'operator';

export interface ApiKey {
  id: string;
  role: Role;
  name: string;
}

/** Keys are random 256 bits and stored as SHA-256: nothing to brute-force, so nothing to stretch. */
export function newKey(): string {
  return `tahan_${randomBytes(32).toString('base64url')}`;
}

export function hashKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** Stores a key's hash under a name; a key that is already known stays as it is. */
export function addKey(db: Database, role: Role, name: string, key: string): Promise<ApiKey> {
  return db.changes.answer<ApiKey>({
    name: 'add_key',
    text: `select tahan.add_key($1::text, $2::text, $3::bytea) as answer`,
    values: [role, name, hashKey(key)],
  });
}

/** Revokes a key by its id; false when there is none that is valid. */
export function revokeKey(db: Database, id: string): Promise<boolean> {
  return db.changes.answer<boolean>({
    name: 'revoke_key',
    text: `select tahan.revoke_key($1::uuid) as answer`,
    values: [id],
  });
}

/** The valid key with this text, or null. */
export async function readKey(
  db: Database,
  key: string,
  withinMs?: number,
): Promise<ApiKey | null> {
  const [row] = await db.reads.rows<ApiKey>(
    {
      name: 'read_key',
      text: `select k.id, k.role, k.name from tahan.api_keys k where k.hash = $1::bytea and k.revoked_at is null`,
      values: [hashKey(key)],
    },
    { withinMs },
  );
  return row ?? null;
}

export function listKeys(
  db: Database,
): Promise<(ApiKey & { createdAt: string; revokedAt: string | null })[]> {
  return db.reads.rows({
    name: 'list_keys',
    text: `select k.id, k.role, k.name, tahan.instant(k.created_at) as "createdAt", tahan.instant(k.revoked_at) as "revokedAt"
           from tahan.api_keys k order by k.created_at, k.id`,
    values: [],
  });
}
