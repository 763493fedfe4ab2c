import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newKey } from '../db/keys.js';

/** What a shop, an operator and the payment service of the demonstration identify themselves with. */
export interface Secrets {
  shopKey: string;
  operatorKey: string;
  /** Standard Webhooks: `whsec_` and base64. */
  webhookSecret: string;
  /** Of the calls about refunds, in the same form. */
  refundSecret: string;
}

/** Made once and kept beside the data, so that a curl line of yesterday works today. */
export function secretsIn(folder: string): Secrets {
  const file = join(folder, 'secrets.json');
  const kept = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Partial<Secrets>) : {};
  const secrets: Secrets = {
    shopKey: newKey(),
    operatorKey: newKey(),
    webhookSecret: newSecret(),
    refundSecret: newSecret(),
    ...kept, // an older version may have kept fewer
  };
  if (Object.keys(kept).length === Object.keys(secrets).length) return secrets;
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600 });
  return secrets;
}

function newSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}
