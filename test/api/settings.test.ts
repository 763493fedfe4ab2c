import { describe, expect, it } from 'vitest';
import { InvalidSettings, readSettings } from '../../api/settings.js';

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const good = { DATABASE_URL: 'postgres://owner@db/tahan', TAHAN_WEBHOOK_SECRETS: secret };

function refusalOf(env: Record<string, string | undefined>): string {
  try {
    readSettings({ ...good, ...env });
    return 'taken';
  } catch (error) {
    if (error instanceof InvalidSettings) return error.message;
    throw error;
  }
}

describe('the settings of the API', () => {
  it('two variables are enough: the address of Postgres and a webhook secret', () => {
    expect(readSettings(good)).toEqual({
      host: '127.0.0.1',
      port: 3000,
      databaseUrl: 'postgres://owner@db/tahan',
      takeAppRole: true,
      webhookSecrets: [secret],
      stripeWebhookSecrets: [],
      claimsInFlight: 500,
      rates: { perKey: null, perBuyer: 60 },
      streams: 1000,
      stockLockTimeoutMs: 15_000,
      logLevel: 'info',
      exitWithParent: false,
    });
  });

  it("the app's own address takes the owner's place, and its role is not taken then", () => {
    const app = 'postgres://app@db/tahan';
    expect(readSettings({ ...good, TAHAN_APP_DATABASE_URL: app })).toMatchObject({
      databaseUrl: app,
      takeAppRole: false,
    });
  });

  it('several secrets, separated by spaces or commas, are all valid', () => {
    const both = `${secret}, whsec_${Buffer.alloc(64, 7).toString('base64')}`;
    expect(readSettings({ ...good, TAHAN_WEBHOOK_SECRETS: both }).webhookSecrets).toHaveLength(2);
  });

  it('S10: the rates are numbers of requests in 10 s, or off', () => {
    const rates = { TAHAN_RATE_PER_KEY: '500', TAHAN_RATE_PER_BUYER: 'off' };
    expect(readSettings({ ...good, ...rates }).rates).toEqual({ perKey: 500, perBuyer: null });
  });

  it.each([
    ['STRIPE_WEBHOOK_SECRETS', 'sk_test_0123456789abcdef', 'whsec_'],
    ['TAHAN_WEBHOOK_SECRETS', undefined, 'is missing'],
    ['TAHAN_WEBHOOK_SECRETS', '', 'is empty'],
    ['TAHAN_WEBHOOK_SECRETS', ' , ', 'is empty'],
    ['TAHAN_WEBHOOK_SECRETS', 'whsec_c2hvcnQ=', 'must hold secrets of 24 to 64 bytes'],
    ['TAHAN_WEBHOOK_SECRETS', `${secret} short`, 'must hold secrets of 24 to 64 bytes'],
    ['TAHAN_WEBHOOK_SECRETS', 'no base64 but long enough to be one', 'must hold secrets'],
    ['DATABASE_URL', undefined, 'is missing'],
    ['PORT', 'http', ''],
    ['PORT', '65536', ''],
    ['TAHAN_CLAIMS_IN_FLIGHT', '0', ''],
    ['TAHAN_RATE_PER_KEY', '0', 'must be "off" or a whole number'],
    ['TAHAN_RATE_PER_KEY', '', 'must be "off"'],
    ['TAHAN_RATE_PER_BUYER', '-1', 'must be "off"'],
    ['TAHAN_RATE_PER_BUYER', '1.5', 'must be "off"'],
    ['TAHAN_RATE_PER_BUYER', 'none', 'must be "off"'],
    ['TAHAN_STREAMS', '0', ''],
    ['TAHAN_LOG_LEVEL', 'loud', ''],
    ['TAHAN_STOCK_LOCK_TIMEOUT_SECONDS', 'soon', 'must be a number of seconds'],
  ])('%s=%s is refused by name', (name, value, sentence) => {
    const refusal = refusalOf({ [name]: value });
    expect(refusal).toContain(name);
    expect(refusal).toContain(sentence);
  });

  it('a refused secret is not repeated in the message', () => {
    expect(refusalOf({ TAHAN_WEBHOOK_SECRETS: 'whsec_c2hvcnQ=' })).not.toContain('c2hvcnQ');
  });
});
