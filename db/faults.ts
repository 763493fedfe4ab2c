/**
 * A fault is no answer: the call may be repeated. The three lock codes say whose lock the budget
 * ran out on, and that nothing has changed (R25, R26). After DATABASE_UNAVAILABLE the change may
 * have happened; every call is safe to repeat and finds out.
 */
export type FaultCode =
  'RESERVATION_IN_PROGRESS' | 'STOCK_LEDGER_BUSY' | 'STOCK_LOCK_TIMEOUT' | 'DATABASE_UNAVAILABLE';

export class DatabaseFault extends Error {
  override readonly name = 'DatabaseFault';
  readonly code: FaultCode;
  constructor(code: FaultCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
