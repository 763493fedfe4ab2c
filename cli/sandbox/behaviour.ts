import { z } from 'zod';

const ms = z.int().min(0).max(3_600_000);
const times = z.int().min(1).max(50);

/** How the provider behaves from now on; what is not named is as usual. */
export const behaviour = z.strictObject({
  refunds: z
    .strictObject({
      /**
       * The refund is executed, and then the caller hears 500 (`fail`) or nothing (`cut`): with this
       * probability, or for the next calls in this order.
       */
      execute_then_fail: z
        .union([z.number().min(0).max(1), z.array(z.enum(['answer', 'fail', 'cut'])).max(10_000)])
        .default(0),
      /** Between execution and answer. */
      slow_ms: ms.default(0),
      /** 503 to everything about refunds. */
      down: z.boolean().default(false),
      /** No refund is executed: 422 with this code. */
      refuse: z
        .string()
        .regex(/^[\w.-]{1,100}$/)
        .nullable()
        .default(null),
      /** So long after an execution its key is forgotten: the same call would execute again. */
      forget_keys_after_ms: ms.nullable().default(null),
      /** More is sent back than was paid, if somebody asks for it. */
      overdraw: z.boolean().default(false),
    })
    .prefault({}),
  webhooks: z
    .strictObject({
      /** Tell the API of every executed refund. */
      refunded: z.boolean().default(true),
      /** Each event so often at the same time. */
      copies: times.default(1),
      first_pause_ms: ms.default(500),
      /** The pauses of an event together, before it is given up. */
      span_ms: z.int().min(0).default(600_000),
    })
    .prefault({}),
});
export type Behaviour = z.infer<typeof behaviour>;

const id = z.string().min(1).max(200);

/** One charge, and how its webhooks come. */
export const chargeRequest = z
  .strictObject({
    hold_id: z.uuid().optional(),
    order_number: z.string().min(1).max(40).optional(),
    payment_id: id.optional(),
    /** The order's total where it has one, else 25.00 EUR. */
    amount_minor: z.int().min(1).max(1_000_000_000_000).optional(),
    currency: z
      .string()
      .regex(/^[A-Z]{3}$/)
      .optional(),
    story: z
      .enum(['succeed', 'fail', 'fail_then_succeed', 'succeed_then_fail', 'refund_then_succeed'])
      .default('succeed'),
    /** So many payments for the one hold, each with an id of its own. */
    payments: z.int().min(1).max(10).default(1),
    /** Each event so often at the same time; the webhooks' own number where it is missing. */
    copies: times.optional(),
    /** Not before the hold is over. */
    late: z.boolean().default(false),
    at: z.iso.datetime({ offset: true }).optional(),
    after_ms: ms.optional(),
    wrong_amount: z.boolean().default(false),
    wrong_currency: z.boolean().default(false),
    bad_signature: z.enum(['never', 'once', 'always']).default('never'),
    slow_ms: ms.default(0),
    never_repeats: z.boolean().default(false),
  })
  .refine((asked) => (asked.hold_id === undefined) !== (asked.order_number === undefined), {
    error: 'name exactly one of hold_id and order_number',
  })
  .refine(
    (asked) =>
      [asked.late || undefined, asked.at, asked.after_ms].filter((one) => one !== undefined)
        .length <= 1,
    {
      error: 'name at most one of late, at and after_ms',
    },
  )
  .refine((asked) => asked.payment_id === undefined || asked.payments === 1, {
    error: 'one payment_id can not be that of several payments',
  });
export type ChargeRequest = z.infer<typeof chargeRequest>;

/** What POST /refunds takes: docs/payment-provider.md. */
export const refundRequest = z.strictObject({
  payment_id: id,
  amount_minor: z.int().min(1),
  currency: z.string().regex(/^[A-Z]{3}$/),
  reason: z.string().max(500),
  hold_id: z.string().max(100),
});
export type RefundCall = z.infer<typeof refundRequest>;

/** Numbers in [0, 1), the same ones for the same seed (mulberry32). */
export function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
