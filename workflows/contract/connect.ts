import { Client, Connection, isRetryableError, makeGrpcRetryInterceptor } from '@temporalio/client';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { pause } from './within.js';

export interface TemporalSettings {
  /** Overrides TEMPORAL_ADDRESS and the profile; `host:port`. */
  address?: string | undefined;
  /** Overrides TEMPORAL_NAMESPACE and the profile. */
  namespace?: string | undefined;
  /** A profile of Temporal's configuration file; TEMPORAL_PROFILE or `default` when left out. */
  profile?: string | undefined;
}

/** Address, namespace and credentials, from the settings, the environment and the profile. */
export function temporalOptions(settings: TemporalSettings = {}) {
  const { profile } = settings;
  const found = loadClientConnectConfig(profile === undefined ? {} : { profile });
  const { address, tls, apiKey, metadata } = found.connectionOptions;
  return {
    address: settings.address ?? address ?? '127.0.0.1:7233',
    namespace: settings.namespace ?? found.namespace ?? 'default',
    ...(tls === undefined ? {} : { tls }),
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(metadata === undefined ? {} : { metadata: metadata as Record<string, string> }),
  };
}

export interface Temporal {
  client: Client;
  address: string;
  namespace: string;
  close(): Promise<void>;
}

/**
 * A client that needs no server yet: it connects with the first call, so that the API can start,
 * and answer 503, while Temporal is away.
 */
export function connect(settings: TemporalSettings = {}): Temporal {
  const { namespace, ...options } = temporalOptions(settings);
  const retries = { closed: false, lastAt: 0 };
  const connection = Connection.lazy({
    ...options,
    // The SDK's own retries go on for 17 to 28 s; a buyer has 5. Four tries are over in 0.9 s.
    interceptors: [
      makeGrpcRetryInterceptor({
        retryableDecider: (attempt, status) =>
          !retries.closed && attempt < 4 && isRetryableError(status),
        delayFunction(attempt) {
          const ms = Math.min(400, 100 * 1.7 ** attempt) * (0.8 + Math.random() * 0.4);
          retries.lastAt = Math.max(retries.lastAt, Date.now() + ms);
          return ms;
        },
      }),
    ],
    // With the defaults the channel was usable again 73 s after a two-minute outage; so after 0.8 s.
    channelArgs: {
      'grpc.initial_reconnect_backoff_ms': 200,
      'grpc.max_reconnect_backoff_ms': 1000,
    },
  });
  return {
    client: new Client({ connection, namespace }),
    address: options.address,
    namespace,
    async close() {
      // A retry that is due after the close throws from its timer, which ends the process.
      retries.closed = true;
      await pause(Math.max(0, retries.lastAt + 20 - Date.now()));
      await connection.close();
    },
  };
}
