import type { Client, Connection } from '@temporalio/client';
import { holdBuyer, holdSkus, holdStatus } from '../searchAttributes.js';
import { within } from './within.js';

export type SearchAttributesCheck =
  | { outcome: 'REGISTERED' }
  /** Go on without them: `indexed: false`. `command` adds them. */
  | { outcome: 'MISSING'; missing: string[]; command: string; detail: string }
  /** Temporal gave no answer: ask again later; until then `indexed: false`. */
  | { outcome: 'UNKNOWN'; command: string; detail: string };

/** `wire` is temporal.api.enums.v1.IndexedValueType. */
const attributes = [
  { name: holdSkus.name, type: 'KeywordList', wire: 7 },
  { name: holdBuyer.name, type: 'Keyword', wire: 2 },
  { name: holdStatus.name, type: 'Keyword', wire: 2 },
];

/**
 * Whether holds may be indexed. A start that names an unregistered attribute fails, so that a
 * cluster without them would take no holds at all; where it is allowed they are added here.
 */
export async function checkSearchAttributes(
  client: Client,
  { withinMs = 3000 }: { withinMs?: number } = {},
): Promise<SearchAttributesCheck> {
  const { namespace } = client.options;
  const command = [
    `temporal operator search-attribute create --namespace ${namespace}`,
    ...attributes.map(({ name, type }) => `--name ${name} --type ${type}`),
  ].join(' ');
  const late: SearchAttributesCheck = { outcome: 'UNKNOWN', command, detail: 'no answer in time' };
  return within(withinMs, check(client, namespace, command), late);
}

async function check(
  client: Client,
  namespace: string,
  command: string,
): Promise<SearchAttributesCheck> {
  const { operatorService } = client.connection as Connection;
  const lacking = async () => {
    const { customAttributes } = await operatorService.listSearchAttributes({ namespace });
    return attributes.filter(({ name, wire }) => Number(customAttributes[name]) !== wire);
  };
  let missing: typeof attributes;
  try {
    missing = await lacking();
  } catch (error) {
    return { outcome: 'UNKNOWN', command, detail: messageOf(error) };
  }
  if (missing.length === 0) return { outcome: 'REGISTERED' };
  const names = missing.map(({ name }) => name);
  try {
    await operatorService.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map(({ name, wire }) => [name, wire])),
    });
    if ((await lacking()).length === 0) return { outcome: 'REGISTERED' };
    return { outcome: 'MISSING', missing: names, command, detail: 'added, not usable yet' };
  } catch (error) {
    // Another process may have added them at the same moment.
    const still = await lacking().catch(() => missing);
    return still.length === 0
      ? { outcome: 'REGISTERED' }
      : { outcome: 'MISSING', missing: names, command, detail: messageOf(error) };
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
