import type { ClaimRefusal } from '../db/claim.js';
import type { Availability } from '../db/readAvailability.js';
import type { Hold, HoldPayment } from '../db/readHold.js';
import type { Movement } from '../db/readMovements.js';
import type { Bin, Product } from '../db/readProduct.js';
import type { ProductSettings } from '../db/product.js';
import type { z } from 'zod';
import type * as schemas from './schemas.js';
import type { ReturnRefund } from '../db/returnSale.js';
import type { Payment, UnmatchedEvent } from '../db/readPayment.js';
import { refundWorkflowId, settleWorkflowId, workflowId } from '../workflows/contract.js';
import { refusalProblem } from './refusals.js';

/** The one place where the database's names become the API's, and back. */

export function showHold(hold: Hold): z.infer<typeof schemas.hold> {
  return {
    id: hold.id,
    status: hold.status,
    buyer_id: hold.buyerId,
    lines: hold.lines.map(({ sku, quantity, released, returned, allocations }) => ({
      sku,
      quantity,
      released,
      returned,
      allocations,
    })),
    created_at: hold.createdAt,
    expires_at: hold.expiresAt,
    expires_in_seconds: hold.expiresInSeconds,
    server_time: hold.serverTime,
    closed_at: hold.closedAt,
    reason: hold.reason,
    refusal: hold.refusal && showRefusal(hold.refusal),
    extensions: hold.extensions,
    metadata: hold.metadata,
    payments: hold.payments.map(showPayment),
    order_number: hold.order?.orderNumber ?? null,
    workflow_id: workflowId(hold.id),
  };
}

/** The same hold as an order: with its number and the prices of the moment it was placed (R33). */
export function showOrder(
  hold: Hold,
  order: NonNullable<Hold['order']>,
): z.infer<typeof schemas.order> {
  return {
    order_number: order.orderNumber,
    status: order.status,
    buyer_id: hold.buyerId,
    lines: hold.lines.map(({ sku, quantity, released, returned, unitPriceMinor, allocations }) => ({
      sku,
      quantity,
      released,
      returned,
      unit_price: money(unitPriceMinor, order.currency),
      allocations,
    })),
    total: money(order.totalMinor, order.currency),
    placed_at: order.placedAt,
    reservation_expires_at: hold.expiresAt,
    expires_in_seconds: hold.expiresInSeconds,
    server_time: hold.serverTime,
    reason: hold.reason,
    metadata: hold.metadata,
    payments: hold.payments.map(showPayment),
    hold_id: hold.id,
    workflow_id: workflowId(hold.id),
  };
}

export function showPayment(payment: HoldPayment): z.infer<typeof schemas.payment> {
  return {
    provider: payment.provider,
    payment_id: payment.paymentId,
    status: payment.status,
    amount_minor: payment.amountMinor,
    currency: payment.currency,
    received_at: payment.receivedAt,
    in_time: payment.inTime,
    settlement: payment.settlement,
    settlement_reason: payment.settlementReason,
  };
}

export function showPaymentRecord(payment: Payment): z.infer<typeof schemas.paymentRecord> {
  const { currency } = payment;
  return {
    ...showPayment(payment),
    hold_id: payment.holdId,
    review: payment.review,
    refunds: payment.refunds.map((refund) => ({
      cause: refund.cause,
      state: refund.state,
      amount_minor: refund.amountMinor,
      currency,
      key: refund.key,
      calls: refund.calls,
      first_called_at: refund.firstCalledAt,
      provider_ref: refund.providerRef,
      detail: refund.detail,
      created_at: refund.createdAt,
      updated_at: refund.updatedAt,
      workflow_id: refundWorkflowId(payment, refund.cause),
    })),
    events: payment.events.map(({ eventId, type, deliveries, receivedAt }) => ({
      event_id: eventId,
      type,
      deliveries,
      received_at: receivedAt,
    })),
    workflow_id: settleWorkflowId(payment),
  };
}

export function showReturnRefund(
  refund: ReturnRefund,
): z.infer<typeof schemas.returned.shape.refund> {
  return {
    provider: refund.provider,
    payment_id: refund.paymentId,
    cause: refund.cause,
    amount_minor: refund.amountMinor,
    currency: refund.currency,
    workflow_id: refundWorkflowId(refund, refund.cause),
  };
}

export function showUnmatchedEvent(event: UnmatchedEvent): z.infer<typeof schemas.unmatchedEvent> {
  return {
    provider: event.provider,
    event_id: event.eventId,
    payment_id: event.paymentId,
    type: event.type,
    payload: event.payload,
    deliveries: event.deliveries,
    received_at: event.receivedAt,
  };
}

function money(amountMinor: number | null, currency: string | null) {
  return amountMinor === null || currency === null ? null : { amount_minor: amountMinor, currency };
}

function showRefusal(refusal: ClaimRefusal): { code: string } {
  const { code, members } = refusalProblem(refusal);
  return { code, ...members };
}

export function showProduct(
  product: Product,
  { withBins }: { withBins: boolean },
): z.infer<typeof schemas.product> {
  return {
    sku: product.sku,
    name: product.name,
    active: product.active,
    price: money(product.priceMinor, product.currency),
    hold_seconds: product.holdSeconds,
    max_hold_seconds: product.maxHoldSeconds,
    max_extensions: product.maxExtensions,
    per_buyer_limit: product.perBuyerLimit,
    late_payment: product.latePayment,
    allocation: product.allocation,
    display: product.display,
    created_at: product.createdAt,
    updated_at: product.updatedAt,
    ...(withBins ? { bins: product.bins.map(showBin) } : {}),
  };
}

/** A change of a product in the database's names; what is left out keeps its value. */
export function productSettings(
  body: Omit<z.infer<typeof schemas.productBody>, 'reason'>,
): ProductSettings {
  const settings: ProductSettings = {
    name: body.name,
    active: body.active,
    priceMinor: body.price === undefined ? undefined : (body.price?.amount_minor ?? null),
    currency: body.price === undefined ? undefined : (body.price?.currency ?? null),
    holdSeconds: body.hold_seconds,
    maxHoldSeconds: body.max_hold_seconds,
    maxExtensions: body.max_extensions,
    perBuyerLimit: body.per_buyer_limit,
    latePayment: body.late_payment,
    allocation: body.allocation,
    display: body.display,
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}

export function showBin(bin: Bin): z.infer<typeof schemas.binAnswer> {
  return {
    code: bin.code,
    available: bin.available,
    held: bin.held,
    sold: bin.sold,
    total: bin.total,
    safety_stock: bin.safetyStock,
    sellable: bin.sellable,
    version: bin.version,
    updated_at: bin.updatedAt,
  };
}

export function showAvailability(one: Availability): z.infer<typeof schemas.availability> {
  return {
    sku: one.sku,
    active: one.active,
    available: one.available,
    sellable: one.sellable,
    held: one.held,
    sold: one.sold,
    total: one.total,
    safety_stock: one.safetyStock,
    next_release_at: one.nextReleaseAt,
    as_of: one.asOf,
  };
}

export function showMovement(movement: Movement): z.infer<typeof schemas.movement> {
  return {
    id: movement.id,
    sku: movement.sku,
    bin: movement.bin,
    bin_version: movement.binVersion,
    hold_id: movement.holdId,
    order_number: movement.orderNumber,
    type: movement.type,
    quantity: movement.quantity,
    from: movement.from,
    to: movement.to,
    reason: movement.reason,
    actor: movement.actor,
    request_id: movement.requestId,
    metadata: movement.metadata,
    created_at: movement.createdAt,
  };
}

export function showPage<Row, Item>(
  page: { items: Row[]; nextCursor: string | null },
  show: (row: Row) => Item,
): { items: Item[]; next_cursor: string | null } {
  return { items: page.items.map(show), next_cursor: page.nextCursor };
}
