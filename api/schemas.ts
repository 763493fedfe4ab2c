import { z } from 'zod';

/**
 * What comes in and what goes out, once: these schemas check requests and make /openapi.json.
 * Objects that come in are strict: an unknown field is refused, so that a misspelt one is not
 * taken for a wish (S14). What is wrong with which field decides the code: `faults.ts`.
 */

/** ASCII only and compared bytewise: `01234` is not `1234`, and no two SKUs look alike. */
export const skuPattern = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$/;

const maxInt4 = 2_147_483_647;

export const sku = z
  .string({ error: 'must be text' })
  .regex(skuPattern, {
    error: 'must be 1 to 64 characters of A-Z a-z 0-9 . _ : / - and begin with a letter or a digit',
  })
  .meta({ description: 'Case-sensitive and compared bytewise.', example: 'TICKET-1' });

export const binCode = z
  .string()
  .regex(skuPattern, {
    error: 'must be 1 to 64 characters of A-Z a-z 0-9 . _ : / - and begin with a letter or a digit',
  })
  .meta({ example: 'main' });

export const buyerId = z
  .string({ error: 'must be text of 1 to 200 characters' })
  .min(1, { error: 'must not be empty' })
  .max(200, { error: 'must have at most 200 characters' })
  .meta({ description: "The shop's own id of the buyer.", example: 'buyer-17' });

const quantity = (most: number) => {
  const error = `must be a whole number from 1 to ${most.toLocaleString('en-US')}, as a JSON number`;
  return z.int({ error }).min(1, { error }).max(most, { error });
};

/** What one product of a checkout may ask for, after its lines were added up (B04). */
export const maxQuantity = 10_000;

const seconds = z
  .int({ error: 'must be a whole number of seconds, at least 1' })
  .min(1, { error: 'must be a whole number of seconds, at least 1' })
  .max(maxInt4, { error: `must be at most ${maxInt4}` });

const count = (most = maxInt4) => {
  const error = `must be a whole number from 0 to ${most}`;
  return z.int({ error }).min(0, { error }).max(most, { error });
};

const reason = z
  .string({ error: 'must say why, in words' })
  .max(500, { error: 'must have at most 500 characters' })
  .refine((text) => text.trim() !== '', { error: 'must say why, in words' })
  .meta({ description: 'Kept in the ledger.', example: 'counted again' });

const currency = z
  .string()
  .regex(/^[A-Z]{3}$/, { error: 'must be an ISO 4217 code of three upper-case letters' })
  .meta({ example: 'EUR' });

const amountMinor = z
  .int({ error: 'must be a whole number of minor units' })
  .min(0, { error: 'must not be negative' })
  .meta({ description: 'Whole minor units (cents).', example: 2500 });

const money = z.strictObject({ amount_minor: amountMinor, currency }).meta({ id: 'Money' });

/** At most 2 KB as JSON, keys and values text. Not for personal data. */
const metadata = z
  .record(z.string(), z.string({ error: 'must be text' }), {
    error: 'must be an object of texts',
  })
  .refine((value) => Buffer.byteLength(JSON.stringify(value)) <= 2048, {
    error: 'must be at most 2 KB',
  })
  .meta({ description: 'Up to 2 KB of texts. Not for personal data.' });

// ---------------------------------------------------------------------------------------------
// Requests

const lines = z
  .array(z.strictObject({ sku, quantity: quantity(maxQuantity) }), {
    error: 'must be a list of 1 to 50 lines {sku, quantity}',
  })
  .min(1, { error: 'must have at least one line' })
  .max(50, { error: 'must have at most 50 lines' })
  .meta({ description: 'Lines of the same product are added up.' });

export const checkoutBody = z
  .strictObject({
    buyer_id: buyerId,
    lines,
    hold_seconds: seconds
      .optional()
      .meta({ description: "At most the products' smallest max_hold_seconds; theirs if missing." }),
    metadata: metadata.optional(),
  })
  .meta({ id: 'Checkout' });

export const orderBody = checkoutBody.partial({ lines: true }).meta({
  id: 'OrderCheckout',
  description: "Without `lines` it takes the buyer's cart, and empties it when it is placed.",
});
/** What both have in common: only an order may leave its lines to the cart. */
export type CheckoutBody = z.infer<typeof orderBody>;

export const cartLineBody = z.strictObject({ quantity: quantity(maxQuantity) }).meta({
  id: 'CartLineChange',
  description: 'Takes the place of what the cart had of this product.',
});

export const cancelBody = z.strictObject({ reason }).meta({ id: 'Cancel' });
export const decisionBody = z
  .strictObject({ decision: z.enum(['accept', 'refund']), reason })
  .meta({ id: 'Decision' });
export const extendBody = z.strictObject({ seconds }).meta({ id: 'Extend' });

export const releaseBody = z.strictObject({ lines, reason }).meta({ id: 'Release' });

const refundError = 'must be a whole number of minor units, at least 0';
export const returnBody = z
  .strictObject({
    reason,
    lines: lines.optional().meta({
      description: 'What came back; without it everything that has not come back yet.',
    }),
    restock: z.boolean({ error: 'must be true or false' }).meta({
      description: 'Whether the units can be sold again; else they stay counted as sold.',
    }),
    refund_minor: z.int({ error: refundError }).min(0, { error: refundError }).optional().meta({
      description:
        'What goes back to the buyer, 0 for nothing. Without it the price of the units in the order; for a hold without prices all that is left of the payment when everything is back.',
    }),
  })
  .meta({ id: 'Return' });

const maxUnits = 2_000_000_000;
const reference = z.string().min(1).max(200);

const units = (least: number) => {
  const error = `must be a whole number from ${least} to ${maxUnits}, as a JSON number`;
  return z.int({ error }).min(least, { error }).max(maxUnits, { error });
};

export const restockBody = z
  .strictObject({ quantity: quantity(maxUnits), reason, reference: reference.optional() })
  .meta({ id: 'Restock' });

const deltaError = 'must be a whole number that is not 0, as a JSON number';
export const adjustmentBody = z
  .strictObject({
    delta: z
      .int({ error: deltaError })
      .min(-maxUnits, { error: deltaError })
      .max(maxUnits, { error: deltaError })
      .refine((delta) => delta !== 0, { error: deltaError })
      .optional(),
    counted: units(0).optional(),
    expected: units(0).optional(),
    reason,
    reference: reference.optional(),
  })
  .superRefine(({ delta, counted, expected }, context) => {
    const fault = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message });
    if (counted === undefined && expected === undefined) {
      if (delta === undefined) fault('delta', deltaError);
    } else if (delta !== undefined) fault('delta', 'does not go with counted and expected');
    else if (counted === undefined) fault('counted', 'must be what was counted');
    else if (expected === undefined) fault('expected', 'must be what was expected to be there');
  })
  .meta({
    id: 'Adjustment',
    description:
      'Either `delta`, a change of the available units, or what was `counted` with what was `expected`: both are what is physically there, `available` and `held`.',
  });

export const moveBody = z
  .strictObject({
    to: binCode.meta({ description: 'Another bin of the same product.' }),
    quantity: quantity(maxUnits),
    reason,
    reference: reference.optional(),
  })
  .meta({ id: 'Move' });

/** A spreadsheet has no JSON numbers, so the sentences of a row don't speak of them. */
const cell = (least: number) => `must be a whole number from ${least} to ${maxUnits}`;
const wholeCell = z
  .int({ error: 'must be a whole number' })
  .min(-maxUnits, { error: cell(-maxUnits) })
  .max(maxUnits, { error: cell(-maxUnits) });

export const importRow = z
  .strictObject({
    sku,
    bin: binCode,
    action: z.enum(['restock', 'adjust', 'count', 'safety_stock'], {
      error: 'must be restock, adjust, count or safety_stock',
    }),
    quantity: wholeCell.meta({
      description:
        'restock: the units that arrived; adjust: the change of the available units; count: what was counted, available and held; safety_stock: the new safety stock.',
    }),
    expected: wholeCell
      .min(0, { error: cell(0) })
      .optional()
      .meta({ description: 'Of a count: what was expected to be there, available and held.' }),
    reason,
    reference: reference.optional(),
  })
  .superRefine(({ action, quantity, expected }, context) => {
    const fault = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message });
    const least = action === 'restock' ? 1 : 0;
    if (action === 'adjust') {
      if (quantity === 0) fault('quantity', 'must be a whole number that is not 0');
    } else if (quantity < least) fault('quantity', cell(least));
    if (action === 'count' && expected === undefined) {
      fault('expected', 'must be what was expected to be there');
    }
    if (action !== 'count' && expected !== undefined) fault('expected', 'belongs to a count only');
  })
  .meta({ id: 'ImportRow' });

export const maxRows = 10_000;
export const importRows = (most: number) =>
  z.strictObject({
    // Counted before they are looked at: 5 MB may be two million of them.
    rows: z.preprocess(
      (rows, context) => {
        if (!Array.isArray(rows) || rows.length <= most) return rows;
        context.addIssue({ code: 'custom', message: 'must have at most 10,000 rows' });
        return z.NEVER;
      },
      z
        .array(importRow, { error: 'must be a list of rows' })
        .min(1, { error: 'must have at least one row' })
        .max(most),
    ),
  });
export const importBody = importRows(maxRows).meta({ id: 'Import' });

const yesOrNo = z
  .enum(['true', 'false'], { error: 'must be true or false' })
  .default('false')
  .transform((text) => text === 'true');

export const importQuery = z.strictObject({
  dry_run: yesOrNo.meta({ description: 'Answer what would happen, and change nothing.' }),
  all_or_nothing: yesOrNo.meta({ description: 'Change nothing when any row is refused.' }),
  reason: reason.optional().meta({ description: 'Of CSV rows that give none of their own.' }),
});

const dayError = 'must be a whole number of seconds from 1 to 86,400';
const holdSeconds = z
  .int({ error: dayError })
  .min(1, { error: dayError })
  .max(86_400, { error: dayError });

const productSettings = {
  name: z.string().max(200),
  active: z.boolean(),
  price: money
    .refine(({ amount_minor }) => amount_minor <= 10_000_000_000, {
      error: 'must be at most 10,000,000,000 minor units',
    })
    .nullable()
    .meta({ description: 'null: the product has no price.' }),
  hold_seconds: holdSeconds,
  max_hold_seconds: holdSeconds,
  max_extensions: count(100),
  per_buyer_limit: count().nullable().meta({ description: '0: none allowed; null: no limit.' }),
  late_payment: z.enum(['refund', 'accept_if_available', 'review']),
  allocation: z.enum(['in_order', 'spread']),
  display: z.enum(['exact', 'bands']),
};

export const productBody = z
  .strictObject({
    ...z.strictObject(productSettings).partial().shape,
    reason: reason.optional(),
  })
  .meta({
    id: 'ProductChange',
    description:
      'What is left out keeps its value. A change of an existing product needs a reason.',
  });

export const binBody = z
  .strictObject({ safety_stock: count(2_000_000_000).optional(), reason: reason.optional() })
  .meta({ id: 'BinChange' });

const ruleSeconds = () => {
  const error = 'must be a whole number of seconds from 1 to 2,592,000 (30 days)';
  return z.int({ error }).min(1, { error }).max(2_592_000, { error });
};
const ruleHoldsError = 'must be a whole number of holds from 1 to 1,000';
const buyerRuleSettings = {
  max_open_holds: count().nullable().meta({
    description: 'How many holds one buyer may have open at once. 0: none allowed; null: no limit.',
  }),
  cool_down: z
    .strictObject({
      holds: z
        .int({ error: ruleHoldsError })
        .min(1, { error: ruleHoldsError })
        .max(1000, { error: ruleHoldsError }),
      within_seconds: ruleSeconds(),
      wait_seconds: ruleSeconds(),
    })
    .nullable()
    .meta({
      description:
        'After so many holds that expired unpaid within so many seconds, the buyer may not check out for so many seconds. null: no such rule.',
    }),
};

export const buyerRulesBody = z
  .strictObject({ ...z.strictObject(buyerRuleSettings).partial().shape, reason })
  .meta({ id: 'BuyerRulesChange', description: 'What is left out keeps its value.' });

export const availabilityBody = z
  .strictObject({
    skus: z
      .array(sku, { error: 'must be a list of 1 to 200 SKUs' })
      .min(1, { error: 'must have at least one SKU' })
      .max(200, { error: 'must have at most 200 SKUs' }),
  })
  .meta({ id: 'AvailabilityQuestion' });

/** In the query of a read or an action: the answer is 404 unless the hold is this buyer's (S6). */
export const ownerQuery = z.strictObject({ buyer_id: buyerId.optional() });
export const noQuery = z.strictObject({});

const limit = z
  .string()
  .regex(/^([1-9]\d?|1\d\d|200)$/, { error: 'must be a number from 1 to 200' })
  .transform(Number)
  .default(50)
  .meta({ type: 'integer', minimum: 1, maximum: 200 });

const cursor = z
  .string()
  .min(1)
  .max(500)
  .meta({ description: '`next_cursor` of the page before.' });

/** RFC 3339 with an offset, in the years that every part of the system can hold; as UTC. */
const instant = z.iso
  .datetime({ offset: true, error: 'must be an RFC 3339 time with an offset or Z' })
  .refine((text) => /^(19[7-9]\d|2\d\d\d)/.test(text) && !Number.isNaN(Date.parse(text)), {
    error: 'must be in the years 1970 to 2999',
  })
  .transform((text) => new Date(text).toISOString())
  .meta({ type: 'string', format: 'date-time' });

const holdStatus = z.enum(['HELD', 'CONFIRMED', 'CANCELLED', 'EXPIRED', 'REJECTED']);
const movementType = z.enum([
  'reserve',
  'confirm_sold',
  'release_reservation',
  'manual_adjustment',
  'restock',
  'return',
]);

export const holdsQuery = z.strictObject({
  status: holdStatus.optional(),
  sku: sku.optional(),
  buyer_id: buyerId.optional(),
  expires_before: instant.optional(),
  cursor: cursor.optional(),
  limit,
});

const orderStatus = z.enum(['pending_payment', 'paid', 'cancelled', 'expired']);

export const ordersQuery = z.strictObject({
  buyer_id: buyerId.optional().meta({ description: 'Required with a shop key.' }),
  status: orderStatus.optional(),
  cursor: cursor.optional(),
  limit,
});

/** A page of the ledger: CSV goes to programs that take more at once. */
export const ledgerLimits = { json: { usual: 50, most: 200 }, csv: { usual: 1000, most: 5000 } };
const ledgerPage = {
  cursor: cursor.optional(),
  limit: z
    .string()
    .regex(/^[1-9]\d{0,3}$/, { error: 'must be a number from 1 to 200, with CSV to 5,000' })
    .transform(Number)
    .optional()
    .meta({
      type: 'integer',
      minimum: 1,
      maximum: ledgerLimits.csv.most,
      description: 'As JSON 50, at most 200; as CSV 1,000, at most 5,000.',
    }),
};
const period = { from: instant.optional(), to: instant.optional() };

export const movementsQuery = z
  .strictObject({
    sku: sku.optional(),
    bin: binCode.optional().meta({ description: 'Of the product `sku`, which must be given.' }),
    type: movementType.optional(),
    hold_id: z.uuid({ error: 'must be the id of a hold' }).optional(),
    order: z.string().min(1).max(40).optional().meta({ description: 'The number of an order.' }),
    actor: z.string().min(1).max(300).optional().meta({ example: 'operator:ann' }),
    ...period,
    ...ledgerPage,
  })
  .refine(({ sku, bin }) => bin === undefined || sku !== undefined, {
    path: ['bin'],
    error: 'needs `sku`: a code is unique only within its product',
  });

export const statementQuery = z
  .strictObject({ bin: binCode.optional(), ...period, ...ledgerPage })
  .refine(({ from, to }) => from === undefined || to === undefined || from <= to, {
    path: ['to'],
    error: 'must not be before `from`',
  });

const settlement = z.enum(['APPLIED', 'REFUND_DUE', 'REFUNDED', 'ACCEPTED_LATE', 'NEEDS_REVIEW']);
const refundState = z.enum(['REQUESTED', 'CALLED', 'EXECUTED', 'REFUSED', 'NOT_NEEDED']);

export const paymentsQuery = z.strictObject({
  settlement: settlement.optional(),
  refund: refundState.optional(),
  cursor: cursor.optional(),
  limit,
});

export const stockQuery = z.strictObject({
  cursor: cursor.optional(),
  limit: z
    .string()
    .regex(/^([1-9]\d{0,3}|10000)$/, { error: 'must be a number from 1 to 10000' })
    .transform(Number)
    .default(1000)
    .meta({ type: 'integer', minimum: 1, maximum: 10_000 }),
});

export const skuPath = z.strictObject({ sku });
export const buyerPath = z.strictObject({ buyer_id: buyerId });
export const binPath = z.strictObject({ code: binCode });
export const pageQuery = z.strictObject({ cursor: cursor.optional(), limit });
export const holdMovementsQuery = z.strictObject({
  buyer_id: buyerId.optional(),
  cursor: cursor.optional(),
  limit,
});

/** Any event of a payment service; what more it says is kept as it came. */
export const anyEvent = z.looseObject({ type: z.string().min(1).max(200) });

/** The events that this service acts on; other types are answered 200 and left alone for now. */
export const paymentEvent = z
  .looseObject({
    type: z.enum(['payment.succeeded', 'payment.failed', 'payment.refunded']),
    timestamp: z.string().min(1).max(64),
    data: z
      .looseObject({
        payment_id: z.string().min(1).max(200),
        hold_id: z.uuid({ error: 'must be the id of a hold' }).optional(),
        order_number: z.string().min(1).max(40).optional(),
        amount_minor: amountMinor,
        currency,
        provider: z
          .string()
          .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, {
            error: 'must be 1 to 64 characters of A-Z a-z 0-9 . _ -',
          })
          // Stripe signs its own events: nobody else may make money of Stripe's go back.
          .refine((name) => name.toLowerCase() !== 'stripe', {
            error: 'stripe has a route of its own',
          })
          .default('default'),
      })
      .refine((data) => (data.hold_id === undefined) !== (data.order_number === undefined), {
        error: 'must name exactly one of hold_id and order_number',
      }),
  })
  .meta({ id: 'PaymentEvent' });

// ---------------------------------------------------------------------------------------------
// Answers

const time = z.string().meta({ format: 'date-time', example: '2026-01-31T12:00:00.000Z' });

const lineUnits = {
  quantity: z.int().meta({
    description: 'What is held or sold; what was asked is this and `released`.',
  }),
  released: z.int().meta({ description: 'Given back before it was paid.' }),
  returned: z.int().meta({ description: 'Of what was sold, how much came back.' }),
};

const allocation = z.object({ bin: z.string(), quantity: z.int() });

export const payment = z
  .object({
    provider: z.string(),
    payment_id: z.string(),
    status: z.enum(['succeeded', 'failed', 'refunded']),
    amount_minor: z.int(),
    currency: z.string(),
    received_at: time.nullable(),
    in_time: z.boolean().nullable(),
    settlement: settlement.nullable(),
    settlement_reason: z.enum(['LATE', 'SURPLUS', 'MISMATCH', 'RETURNED', 'REVIEWED']).nullable(),
  })
  .meta({ id: 'Payment' });

/** A payment as an operator sees it: what became of it, and all that was heard and done about it. */
export const paymentRecord = z
  .object({
    ...payment.shape,
    hold_id: z.uuid(),
    review: z
      .object({ decision: z.string(), reason: z.string(), actor: z.string(), at: time })
      .nullable(),
    refunds: z.array(
      z.object({
        cause: z.string(),
        state: refundState.meta({
          description:
            'CALLED: the provider was called, and its answer is not known yet. REFUSED: it said no for good. NOT_NEEDED: the money was back before any call.',
        }),
        amount_minor: z.int(),
        currency: z.string(),
        key: z.string().meta({ description: "The provider's idempotency key." }),
        calls: z.int(),
        first_called_at: time.nullable(),
        provider_ref: z.string().nullable(),
        detail: z.string().nullable(),
        created_at: time,
        updated_at: time,
        workflow_id: z.string(),
      }),
    ),
    events: z.array(
      z.object({ event_id: z.string(), type: z.string(), deliveries: z.int(), received_at: time }),
    ),
    workflow_id: z.string(),
  })
  .meta({ id: 'PaymentRecord' });

export const unmatchedEvent = z
  .object({
    provider: z.string(),
    event_id: z.string(),
    payment_id: z.string().nullable(),
    type: z.string(),
    payload: z.unknown(),
    deliveries: z.int(),
    received_at: time,
  })
  .meta({ id: 'UnmatchedEvent' });

const shortfall = z.object({ sku: z.string(), requested: z.int(), available: z.int() });

export const hold = z
  .object({
    id: z.uuid(),
    status: holdStatus,
    buyer_id: z.string(),
    lines: z.array(z.object({ sku: z.string(), ...lineUnits, allocations: z.array(allocation) })),
    created_at: time,
    expires_at: time.nullable(),
    expires_in_seconds: z.int(),
    server_time: time,
    closed_at: time.nullable(),
    reason: z.string().nullable(),
    refusal: z
      .looseObject({ code: z.string(), shortfalls: z.array(shortfall).optional() })
      .nullable()
      .meta({ description: 'Why a REJECTED hold was refused; null for all others.' }),
    extensions: z.int(),
    metadata: z.record(z.string(), z.string()),
    payments: z.array(payment),
    order_number: z.string().nullable(),
    workflow_id: z.string(),
  })
  .meta({ id: 'Hold' });

export const order = z
  .object({
    order_number: z.string(),
    status: orderStatus,
    buyer_id: z.string(),
    lines: z.array(
      z.object({
        sku: z.string(),
        ...lineUnits,
        unit_price: money.nullable(),
        allocations: z.array(allocation),
      }),
    ),
    total: money.nullable(),
    placed_at: time,
    reservation_expires_at: time.nullable(),
    expires_in_seconds: z.int(),
    server_time: time,
    closed_at: time.nullable().meta({ description: 'When it was paid, cancelled or expired.' }),
    reason: z.string().nullable(),
    metadata: z.record(z.string(), z.string()),
    payments: z.array(payment),
    hold_id: z.uuid(),
    workflow_id: z.string(),
  })
  .meta({ id: 'Order' });

export const cart = z
  .object({
    buyer_id: z.string(),
    lines: z.array(
      z.object({
        sku: z.string(),
        quantity: z.int(),
        name: z.string(),
        active: z
          .boolean()
          .meta({ description: 'false: an order of this cart is refused until it is taken out.' }),
        unit_price: money
          .nullable()
          .meta({ description: 'Of this moment. A cart keeps no price.' }),
      }),
    ),
    totals: z
      .array(money)
      .meta({ description: 'Of the priced lines, by currency; an order can have only one.' }),
  })
  .meta({ id: 'Cart' });

export const returned = z
  .object({
    hold,
    lines: z.array(z.object({ sku: z.string(), quantity: z.int() })),
    restock: z.boolean(),
    refund: z
      .object({
        provider: z.string(),
        payment_id: z.string(),
        cause: z.string(),
        amount_minor: z.int(),
        currency: z.string(),
        workflow_id: z.string(),
      })
      .nullable()
      .meta({
        description:
          'The refund that was asked for; what became of it is at /v1/payments/{provider}/{payment_id}.',
      }),
    no_refund: z.enum(['NOT_ASKED', 'NOTHING_LEFT', 'TAKEN_BACK']).nullable().meta({
      description:
        'Why there is no refund. TAKEN_BACK: the provider had sent the money back before.',
    }),
    workflow_id: z.string(),
  })
  .meta({ id: 'Returned' });

export const claiming = z
  .object({
    id: z.uuid(),
    status: z.literal('CLAIMING'),
    detail: z.string(),
    workflow_id: z.string(),
  })
  .meta({ id: 'Claiming', description: 'Not decided yet: repeat the POST with the same key.' });

const bin = z
  .object({
    code: z.string(),
    available: z.int(),
    held: z.int(),
    sold: z.int(),
    total: z.int(),
    safety_stock: z.int(),
    sellable: z.int(),
    version: z.int(),
    updated_at: time,
  })
  .meta({ id: 'Bin' });

export const product = z
  .object({
    sku: z.string(),
    ...productSettings,
    created_at: time,
    updated_at: time,
    bins: z.array(bin).optional().meta({ description: 'Only for an operator key.' }),
  })
  .meta({ id: 'Product' });

export const binAnswer = bin;

export const buyerRules = z
  .object({ ...buyerRuleSettings, updated_at: time })
  .meta({ id: 'BuyerRules' });

const counts = z.object({ available: z.int(), held: z.int(), sold: z.int() });

export const stockChanged = z
  .object({
    sku: z.string(),
    bin: z.string(),
    ...counts.shape,
    safety_stock: z.int(),
    version: z.int(),
  })
  .meta({ id: 'StockChanged' });

export const stockMoved = z
  .object({ sku: z.string(), from: stockChanged, to: stockChanged })
  .meta({ id: 'StockMoved' });

export const rowResult = z
  .object({
    line: z.int().meta({ description: 'In the CSV file; of JSON rows the first is 1.' }),
    sku: z.string(),
    bin: z.string(),
    outcome: z.enum([
      'DONE',
      'INSUFFICIENT_STOCK',
      'STOCK_CHANGED',
      'INVALID_QUANTITY',
      'REASON_REQUIRED',
      'PRODUCT_NOT_FOUND',
      'BIN_NOT_FOUND',
    ]),
    available: z.int().nullable(),
    held: z.int().nullable(),
    sold: z.int().nullable(),
    safety_stock: z.int().nullable(),
    version: z.int().nullable(),
  })
  .meta({
    id: 'RowResult',
    description: 'The counts are those that the row left, or met where it was refused.',
  });

export const imported = z
  .object({
    dry_run: z.boolean(),
    all_or_nothing: z.boolean(),
    rows: z.int(),
    done: z.int(),
    refused: z.int(),
    results: z.array(rowResult),
  })
  .meta({ id: 'Imported' });

export const stockedBin = z
  .object({
    sku: z.string(),
    bin: z.string(),
    available: z.int(),
    held: z.int(),
    on_hand: z.int().meta({ description: 'available and held: what is physically there.' }),
    sold: z.int(),
    safety_stock: z.int(),
    sellable: z.int(),
    version: z.int(),
    updated_at: time,
  })
  .meta({ id: 'StockedBin' });

export const settingChange = z
  .object({
    id: z.string(),
    bin: z.string().nullable().meta({ description: 'null: the product itself.' }),
    before: z.record(z.string(), z.unknown()).nullable(),
    after: z.record(z.string(), z.unknown()),
    actor: z.string(),
    reason: z.string().nullable(),
    created_at: time,
  })
  .meta({ id: 'SettingChange' });

const shown = z.int().nullable();

export const availability = z
  .object({
    sku: z.string(),
    active: z.boolean(),
    display: productSettings.display,
    level: z
      .enum(['in_stock', 'low', 'sold_out'])
      .meta({ description: 'low: at most 10 are sellable.' }),
    available: shown.meta({
      description: 'This and the other counts are null for a shop key where display is `bands`.',
    }),
    sellable: shown.meta({ description: 'What a claim may take.' }),
    held: shown,
    sold: shown,
    total: shown,
    safety_stock: shown,
    next_release_at: time.nullable().meta({
      description: 'When the next open unpaid hold ends. With `bands` only when sold out.',
    }),
    as_of: time,
    bins: z
      .array(
        z.object({
          code: z.string(),
          available: z.int(),
          sellable: z.int(),
          held: z.int(),
          sold: z.int(),
          total: z.int(),
          safety_stock: z.int(),
        }),
      )
      .optional()
      .meta({ description: 'Only of one product, for an operator key.' }),
  })
  .meta({ id: 'Availability' });

const streamSkus = 'must be 1 to 50 SKUs, separated by commas';
export const streamQuery = z.strictObject({
  skus: z
    .string({ error: streamSkus })
    .transform((text) => [...new Set(text.split(','))])
    .pipe(z.array(sku).max(50, { error: streamSkus }))
    .meta({ type: 'string', description: 'Up to 50, separated by commas.' }),
});

export const movement = z
  .object({
    id: z.string(),
    sku: z.string(),
    bin: z.string(),
    bin_version: z.int(),
    hold_id: z.string().nullable(),
    order_number: z.string().nullable(),
    type: movementType,
    quantity: z.int(),
    from: counts,
    to: counts,
    reason: z.string(),
    actor: z.string(),
    request_id: z.string().nullable(),
    metadata: z.record(z.string(), z.unknown()),
    created_at: time,
  })
  .meta({ id: 'Movement' });

const balance = z.object({ version: z.int(), ...counts.shape });

export const statement = z
  .object({
    sku: z.string(),
    from: time.nullable(),
    to: time.nullable(),
    as_of: time,
    opening: counts.meta({
      description:
        "The product's counts before the movements of this page: what the page before closed with.",
    }),
    closing: counts,
    bins: z.array(z.object({ code: z.string(), opening: balance, closing: balance })).meta({
      description: 'The bins that this page went through; `version` counts the movements of a bin.',
    }),
    items: z.array(movement).meta({ description: 'By bin and bin_version, without a hole.' }),
    next_cursor: z.string().nullable(),
  })
  .meta({ id: 'Statement' });

export const list = <Item extends z.ZodType>(item: Item) =>
  z.object({ items: z.array(item), next_cursor: z.string().nullable() });

export const availabilityList = z.object({
  items: z.array(availability),
  unknown: z.array(z.string()).meta({ description: 'SKUs of the question that are no product.' }),
});

export const paymentAnswer = z
  .object({
    outcome: z.enum(['RECORDED', 'DUPLICATE', 'IGNORED']),
    hold_id: z.string().nullable(),
  })
  .meta({ id: 'PaymentAnswer' });

export const problem = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.string(),
    request_id: z.string(),
  })
  .meta({ id: 'Problem' });
