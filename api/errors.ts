interface ErrorKind {
  status: number;
  title: string;
  whatToDo: string;
  /** Carries `Retry-After`, as every 429 and 503 does. */
  retryAfter?: true;
}

/**
 * Every code this API can answer with, in one table: `docs/errors.md` is generated from it and a
 * test compares the two. Codes are stable; a sentence ("detail") may change.
 */
export const errors = {
  INVALID_REQUEST: {
    status: 400,
    title: 'The request is not in the form that this route expects',
    whatToDo: 'Correct the fields named in `errors` and send it again.',
  },
  IDEMPOTENCY_KEY_REQUIRED: {
    status: 400,
    title: 'The Idempotency-Key header is missing',
    whatToDo:
      'Send an Idempotency-Key of your own with each checkout or import, and the same one with a repeat.',
  },
  UNAUTHENTICATED: {
    status: 401,
    title: 'No valid API key',
    whatToDo: 'Send `Authorization: Bearer KEY` with a key that is not revoked.',
  },
  SIGNATURE_INVALID: {
    status: 401,
    title: 'The signature of the delivery is not valid',
    whatToDo:
      'Sign the raw body with the shared secret, by Standard Webhooks or as Stripe does, with a clock that is right within 5 minutes.',
  },
  FORBIDDEN: {
    status: 403,
    title: 'This key may not do that',
    whatToDo: 'Use an operator key: stock, the ledger and lists over all buyers need one.',
  },
  HOLD_NOT_FOUND: {
    status: 404,
    title: 'No such hold',
    whatToDo:
      'Check the id and the buyer. If the checkout was answered 202 or 503, repeat its POST with the same Idempotency-Key: that is always safe.',
  },
  ORDER_NOT_FOUND: {
    status: 404,
    title: 'No such order',
    whatToDo:
      'Check the number and the buyer. If the checkout was answered 202 or 503, repeat its POST with the same Idempotency-Key: that is always safe.',
  },
  PRODUCT_NOT_FOUND: {
    status: 404,
    title: 'No such product',
    whatToDo: 'Check the SKU: upper and lower case and leading zeros count.',
  },
  BIN_NOT_FOUND: {
    status: 404,
    title: 'No such bin',
    whatToDo: 'Check the code, or create the bin with PUT /v1/products/{sku}/bins/{code}.',
  },
  PAYMENT_NOT_FOUND: {
    status: 404,
    title: 'No such payment',
    whatToDo:
      'Check provider and payment id; events that found no hold are at /v1/payments/unmatched.',
  },
  ROUTE_NOT_FOUND: {
    status: 404,
    title: 'No such route',
    whatToDo: 'Check method and path against /openapi.json.',
  },
  INSUFFICIENT_STOCK: {
    status: 409,
    title: 'Not enough units are free',
    whatToDo:
      'Show the buyer what `shortfalls` says; nothing was taken. Try again later under a new Idempotency-Key.',
  },
  STOCK_CHANGED: {
    status: 409,
    title: 'Something else is in the bin than the count expected',
    whatToDo: 'Count again, and send what was counted with `on_hand` of this answer as `expected`.',
  },
  IMPORT_REFUSED: {
    status: 409,
    title: 'Rows were refused, and all or nothing was asked for',
    whatToDo:
      'Nothing has changed. Correct the rows that `results` names and send all of them again under a new Idempotency-Key.',
  },
  BUYER_LIMIT_EXCEEDED: {
    status: 409,
    title: 'The buyer would have more units of a product, or more open holds, than one buyer may',
    whatToDo:
      'Ask for less, or cancel an open hold of this buyer first; `rule` says which limit it is. Then use a new Idempotency-Key.',
  },
  BUYER_COOL_DOWN: {
    status: 409,
    title: 'The buyer let too many holds expire and has to wait',
    whatToDo: 'Try again at `retry_at` (Retry-After) under a new Idempotency-Key.',
    retryAfter: true,
  },
  PRODUCT_INACTIVE: {
    status: 409,
    title: 'The product is not on sale',
    whatToDo: 'Leave it out, or have an operator activate it.',
  },
  CART_FULL: {
    status: 409,
    title: 'The cart has no room for another line',
    whatToDo: 'Take a line out first, or order what is in it.',
  },
  HOLD_ALREADY_CONFIRMED: {
    status: 409,
    title: 'The hold is paid and confirmed',
    whatToDo: 'Nothing to do for a checkout; what was sold comes back only by a return.',
  },
  HOLD_ALREADY_CANCELLED: {
    status: 409,
    title: 'The hold was cancelled',
    whatToDo: 'Make a new hold under a new Idempotency-Key.',
  },
  HOLD_EXPIRED: {
    status: 409,
    title: 'The hold has ended',
    whatToDo: 'Make a new hold under a new Idempotency-Key; an ended one is never renewed.',
  },
  HOLD_NOT_CONFIRMED: {
    status: 409,
    title: 'The hold was not sold',
    whatToDo: 'Only a confirmed hold is returned; an open one is cancelled or released.',
  },
  ALREADY_RETURNED: {
    status: 409,
    title: 'Everything of this hold has come back',
    whatToDo: 'Read the hold: `returned` says how much of each line came back.',
  },
  EXTENSION_LIMIT_REACHED: {
    status: 409,
    title: 'The hold can not be extended that far',
    whatToDo: 'Ask for at most `largest_seconds`; with 0 there is nothing left to ask for.',
  },
  PAYMENT_OF_OTHER_HOLD: {
    status: 409,
    title: 'This payment id belongs to another hold',
    whatToDo: 'Send each payment for one hold only.',
  },
  PAYMENT_NOT_IN_REVIEW: {
    status: 409,
    title: 'Nothing is to be decided about this payment',
    whatToDo: 'Read the payment: `settlement` says what became of it.',
  },
  PAYMENT_NOT_ACCEPTABLE: {
    status: 409,
    title: 'This payment can not be accepted any more',
    whatToDo: 'Decide `refund`; it stays in review until then.',
  },
  RESERVATION_IN_PROGRESS: {
    status: 409,
    title: 'The same checkout is still being decided',
    whatToDo: 'Repeat the POST with the same Idempotency-Key in a second.',
  },
  BODY_TOO_LARGE: {
    status: 413,
    title: 'The body is too large',
    whatToDo: 'Send at most 16 KB, at most 256 KB to the webhook, and at most 5 MB to an import.',
  },
  INVALID_SKU: {
    status: 422,
    title: 'Not a SKU',
    whatToDo:
      'Send 1 to 64 characters of A-Z a-z 0-9 . _ : / - that begin with a letter or a digit.',
  },
  INVALID_QUANTITY: {
    status: 422,
    title: 'Not a quantity',
    whatToDo:
      'Send a whole JSON number: 1 to 10,000 for each product of a checkout (lines of one product are added up), a delta that is not 0 for an adjustment, or what was `counted` with what was `expected`; at most what `lines` says for a release or a return.',
  },
  INVALID_REFUND: {
    status: 422,
    title: 'Not an amount that can go back',
    whatToDo: 'Send `refund_minor` as a whole number of minor units, at most `left_minor`.',
  },
  INVALID_HOLD_SECONDS: {
    status: 422,
    title: 'Not a hold time that these products allow',
    whatToDo:
      'Send a whole number of seconds, at least 1 and at most what `max_hold_seconds` says, or leave it out.',
  },
  SAME_BIN: {
    status: 422,
    title: 'The units are to move to the bin that they are in',
    whatToDo: 'Name another bin of the product in `to`.',
  },
  REASON_REQUIRED: {
    status: 422,
    title: 'A reason is required',
    whatToDo: 'Say why in `reason`; it is kept in the ledger.',
  },
  CART_EMPTY: {
    status: 422,
    title: 'The cart is empty',
    whatToDo:
      'Put lines into it, or name `lines`, and place the order under a new Idempotency-Key. If the cart had been filled, look at the orders of this buyer: an order empties it.',
  },
  MIXED_CURRENCIES: {
    status: 422,
    title: 'The products have prices in several currencies',
    whatToDo: 'Place one order per currency.',
  },
  IDEMPOTENCY_KEY_REUSED: {
    status: 422,
    title: 'The Idempotency-Key was used for another request',
    whatToDo: 'Use a new key for a new request, and repeat a request only with its own body.',
  },
  RATE_LIMITED: {
    status: 429,
    title: 'Too many requests of this API key, or checkouts of this buyer',
    whatToDo:
      'Nothing was done. Repeat the request after Retry-After, a checkout with the same Idempotency-Key; a repeat counts like any other request.',
  },
  INTERNAL_ERROR: {
    status: 500,
    title: 'A defect of this service',
    whatToDo: 'Report the `request_id`; repeating with the same Idempotency-Key is safe.',
  },
  CHECKOUT_TIMED_OUT: {
    status: 503,
    title: 'The checkout was not decided in time',
    whatToDo: 'Nothing is held and nothing will be. Repeat the POST with the same Idempotency-Key.',
  },
  SALE_BUSY: {
    status: 503,
    title: 'Too many checkouts at once',
    whatToDo: 'Nothing was taken. Repeat the POST with the same Idempotency-Key after Retry-After.',
  },
  STREAMS_BUSY: {
    status: 503,
    title: 'Too many open streams',
    whatToDo: 'Connect again after Retry-After, or read GET /v1/products/{sku}/availability.',
  },
  STOCK_LOCK_TIMEOUT: {
    status: 503,
    title: 'Another change of the same stock takes too long',
    whatToDo: 'Nothing has changed. Repeat the request after Retry-After.',
  },
  STOCK_LEDGER_BUSY: {
    status: 503,
    title: 'This hold is being changed by another request',
    whatToDo: 'Read the hold, then repeat the request after Retry-After.',
  },
  WORKFLOW_UNAVAILABLE: {
    status: 503,
    title: 'Temporal does not answer',
    whatToDo: 'Repeat the request after Retry-After, a checkout with the same Idempotency-Key.',
  },
  DATABASE_UNAVAILABLE: {
    status: 503,
    title: 'Postgres does not answer',
    whatToDo: 'Repeat the request after Retry-After, a checkout with the same Idempotency-Key.',
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errors;

/** A refusal over HTTP (RFC 9457): thrown by a route, written by the one error handler of app.ts. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly code: ErrorCode;
  /** Members beside the standard ones, such as `shortfalls`. */
  readonly members: Record<string, unknown>;
  readonly retryAfterSeconds: number;
  /** Response headers of this one answer. */
  readonly headers: Record<string, string> = {};

  /** @param detail a sentence that names the cause; what to do is added from the table. */
  constructor(
    code: ErrorCode,
    detail: string,
    { members = {}, retryAfterSeconds = 1 }: { members?: object; retryAfterSeconds?: number } = {},
  ) {
    // An answer, not a defect: nobody reads where it was made, and to find that out is a quarter of its price.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(detail);
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.members = { ...members };
    this.retryAfterSeconds = retryAfterSeconds;
  }

  get status(): number {
    return errors[this.code].status;
  }

  toJSON(): object {
    const { status, title, whatToDo } = errors[this.code];
    return {
      type: typeOf(this.code),
      title,
      status,
      detail: `${this.message} ${whatToDo}`,
      code: this.code,
      ...this.members,
    };
  }
}

/** Whether an answer with this code says when to ask again. */
export function saysWhen(code: ErrorCode): boolean {
  const { status, retryAfter }: ErrorKind = errors[code];
  return status === 429 || status === 503 || retryAfter === true;
}

export function typeOf(code: ErrorCode): string {
  return `urn:tahan:error:${code.toLowerCase().replaceAll('_', '-')}`;
}

/** The page `docs/errors.md`, with its table padded as Prettier wants it. */
export function errorsPage(): string {
  const rows = Object.entries(errors).map(([code, { status, title, whatToDo }]) => [
    `\`${code}\``,
    String(status),
    `${title}.`,
    whatToDo,
  ]);
  return `# Errors

Every refusal is \`application/problem+json\` (RFC 9457) with a stable \`code\`; its \`detail\` is a sentence that names the cause and the way out.
429, 503 and \`BUYER_COOL_DOWN\` carry \`Retry-After\`, and so does 202: a checkout that is not decided yet (\`"status": "CLAIMING"\`), which repeating the POST with the same key settles. When several faults meet, the answer names the first of: route, API key, the key's rate (429), headers, size and form of the body (400), its fields (422), the buyer's rate (429), then what Postgres said.

This page is generated from \`api/errors.ts\` by \`npm run openapi\`.

${table(['code', 'HTTP', 'meaning', 'what to do'], rows)}
`;
}

function table(head: string[], rows: string[][]): string {
  const widths = head.map((_, column) =>
    Math.max(3, ...[head, ...rows].map((row) => row[column]!.length)),
  );
  const line = (cells: string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}
