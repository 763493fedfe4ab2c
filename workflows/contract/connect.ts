import { Client, Connection, isRetryableError, makeGrpcRetryInterceptor } from '@temporalio/client';
import type { ConnectionOptions } from '@temporalio/client';
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

/** How the tries of the calls that were made for one message ended. */
export interface Tries {
  ended: number;
  withoutConnection: number;
}

/** A deadline goes through the client as the object it is: by it the interceptor knows whose call it sees. */
const messages = new WeakMap<Date, Tries>();

/** A deadline that counts the tries of every call under it. */
export function countingDeadline(atMs: number): { deadline: Date; tries: Tries } {
  const [deadline, tries] = [new Date(atMs), { ended: 0, withoutConnection: 0 }];
  messages.set(deadline, tries);
  return { deadline, tries };
}

type Interceptor = NonNullable<ConnectionOptions['interceptors']>[number];

/**
 * gRPC's words for a try that had no connection to be written to. Whatever else a try ends with may
 * mean that the server has it.
 */
function hadNoConnection({ code, details }: { code: number; details: string }): boolean {
  return code === 14 && details.startsWith('No connection established');
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
  // The SDK's own retries go on for 17 to 28 s; a buyer has 5. Four tries are over in 0.9 s.
  const fourTries: Interceptor = (call, nextCall) => {
    const { deadline } = call;
    const tries = deadline instanceof Date ? messages.get(deadline) : undefined;
    const interceptor = makeGrpcRetryInterceptor({
      retryableDecider(attempt, status) {
        if (tries !== undefined) {
          tries.ended += 1;
          if (hadNoConnection(status)) tries.withoutConnection += 1;
        }
        return !retries.closed && attempt < 4 && isRetryableError(status);
      },
      delayFunction(attempt) {
        const ms = Math.min(400, 100 * 1.7 ** attempt) * (0.8 + Math.random() * 0.4);
        retries.lastAt = Math.max(retries.lastAt, Date.now() + ms);
        return ms;
      },
    });
    return interceptor(call, nextCall);
  };
  const connection = Connection.lazy({
    ...options,
    interceptors: [fourTries],
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
