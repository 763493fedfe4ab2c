import { DatabaseFault } from './faults.js';
import type { FaultCode } from './faults.js';

/** Our own SQLSTATEs, raised by the functions; matched by code, since messages are translated. */
const ours: Record<string, FaultCode> = {
  TH001: 'RESERVATION_IN_PROGRESS',
  TH002: 'STOCK_LEDGER_BUSY',
  TH003: 'STOCK_LOCK_TIMEOUT',
};

/** Postgres is going away, is coming up, has no slot left, or stopped the statement. */
const unavailable = /^(08...|57P0[1-5]|57014|53300|53400|25P0[23]|58030)$/;
/** What node's sockets say; `pg` adds errors without a code when a connection ends. */
const socket =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|EAI_AGAIN|ENOENT|ERR_STREAM_DESTROYED)$/;

export function isConflict(error: unknown): boolean {
  const code = codeOf(error);
  return code === '40P01' || code === '40001';
}

/** A lock code or an unreachable database as a DatabaseFault; anything else as it came: a defect. */
export function asFault(error: unknown): unknown {
  if (error instanceof DatabaseFault) return error;
  const code = codeOf(error);
  const own = code === undefined ? undefined : ours[code];
  if (own !== undefined) return new DatabaseFault(own, (error as Error).message, { cause: error });
  const gone =
    code === undefined
      ? /connection|terminated|timeout/i.test(error instanceof Error ? error.message : '')
      : unavailable.test(code) || socket.test(code) || isConflict(error);
  return gone
    ? new DatabaseFault('DATABASE_UNAVAILABLE', `Postgres: ${(error as Error).message}`, {
        cause: error,
      })
    : error;
}

function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : undefined;
}
