import { pino } from 'pino';
import type { LogLevel, LogMetadata } from '@temporalio/common';
import type { Logger } from '@temporalio/worker';

export type Log = pino.Logger;

/** One JSON object a line, on stdout. */
export function openLog(level: string): Log {
  return pino({
    name: 'tahan-worker',
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
  });
}

/** A warning of the SDK that is as it should be: one of our workers has activities only (worker.ts). */
const meant = 'No workflows registered, not polling for workflow tasks';

/** The same log for the SDK, for workflow code and for activities. */
export function temporalLogger(log: Log): Logger {
  const write = (level: LogLevel, message: string, meta: LogMetadata = {}) => {
    const { error, ...rest } = meta;
    const name = (message === meant ? 'debug' : level.toLowerCase()) as
      'trace' | 'debug' | 'info' | 'warn' | 'error';
    log[name](error === undefined ? rest : { ...rest, err: error }, message);
  };
  return {
    log: write,
    trace: (message, meta) => write('TRACE', message, meta),
    debug: (message, meta) => write('DEBUG', message, meta),
    info: (message, meta) => write('INFO', message, meta),
    warn: (message, meta) => write('WARN', message, meta),
    error: (message, meta) => write('ERROR', message, meta),
  };
}
