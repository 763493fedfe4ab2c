import type { BuyerRules } from '../db/buyerRules.js';
import type { ClaimRefusal } from '../db/claim.js';
import type { Role } from '../db/keys.js';
import type { Availability, BinAvailability } from '../db/readAvailability.js';
import type { Cart } from '../db/readCart.js';
import type { Hold, HoldPayment } from '../db/readHold.js';
import type { RowResult } from '../db/importStock.js';
import type { SettingChange } from '../db/readChanges.js';
import type { Movement } from '../db/readMovements.js';
import type { Bin, Product } from '../db/readProduct.js';
import type { Statement } from '../db/readStatement.js';
import type { StockedBin } from '../db/readStock.js';
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
    closed_at: hold.closedAt,
    reason: hold.reason,
    metadata: hold.metadata,
    payments: hold.payments.map(showPayment),
    hold_id: hold.id,
    workflow_id: workflowId(hold.id),
  };
}

export function showCart(cart: Cart): z.infer<typeof schemas.cart> {
  return {
    buyer_id: cart.buyerId,
    lines: cart.lines.map(({ sku, quantity, name, active, unitPriceMinor, currency }) => ({
      sku,
      quantity,
      name,
      active,
      unit_price: money(unitPriceMinor, currency),
    })),
    totals: cart.totals.map(({ amountMinor, currency }) => ({
      amount_minor: amountMinor,
      currency,
    })),
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

export function showBuyerRules(
  rules: BuyerRules & { updatedAt: string },
): z.infer<typeof schemas.buyerRules> {
  const { maxOpenHolds, coolDown, updatedAt } = rules;
  return {
    max_open_holds: maxOpenHolds,
    cool_down: coolDown && {
      holds: coolDown.holds,
      within_seconds: coolDown.withinSeconds,
      wait_seconds: coolDown.seconds,
    },
    updated_at: updatedAt,
  };
}

/** A change of the rules in the database's names; what is left out keeps its value. */
export function buyerRules({
  max_open_holds: maxOpenHolds,
  cool_down: coolDown,
}: Omit<z.infer<typeof schemas.buyerRulesBody>, 'reason'>): Partial<BuyerRules> {
  return {
    ...(maxOpenHolds === undefined ? {} : { maxOpenHolds }),
    ...(coolDown === undefined
      ? {}
      : {
          coolDown: coolDown && {
            holds: coolDown.holds,
            withinSeconds: coolDown.within_seconds,
            seconds: coolDown.wait_seconds,
          },
        }),
  };
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

export function showStockedBin(bin: StockedBin): z.infer<typeof schemas.stockedBin> {
  return {
    sku: bin.sku,
    bin: bin.code,
    available: bin.available,
    held: bin.held,
    on_hand: bin.available + bin.held,
    sold: bin.sold,
    safety_stock: bin.safetyStock,
    sellable: bin.sellable,
    version: bin.version,
    updated_at: bin.updatedAt,
  };
}

export function showRowResult(
  { outcome, counts, safetyStock, version }: RowResult,
  { line, sku, bin }: { line: number; sku: string; bin: string },
): z.infer<typeof schemas.rowResult> {
  return {
    line,
    sku,
    bin,
    outcome,
    available: counts?.available ?? null,
    held: counts?.held ?? null,
    sold: counts?.sold ?? null,
    safety_stock: safetyStock,
    version,
  };
}

export function showSettingChange(change: SettingChange): z.infer<typeof schemas.settingChange> {
  return {
    id: change.id,
    bin: change.bin,
    before: change.before && showSettings(change.before),
    after: showSettings(change.after),
    actor: change.actor,
    reason: change.reason,
    created_at: change.createdAt,
  };
}

/** What was kept of a product or a bin, by the names that PUT takes. */
function showSettings({ priceMinor, currency, ...rest }: Record<string, unknown>) {
  const settings = Object.entries(rest).map(([name, value]): [string, unknown] => [
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    value,
  ]);
  const price = money((priceMinor ?? null) as number | null, (currency ?? null) as string | null);
  return { ...Object.fromEntries(settings), ...(priceMinor === undefined ? {} : { price }) };
}

/** Up to so many sellable units are "low". */
export const lowAtMost = 10;

function levelOf(sellable: number): 'in_stock' | 'low' | 'sold_out' {
  if (sellable > lowAtMost) return 'in_stock';
  return sellable > 0 ? 'low' : 'sold_out';
}

/**
 * With `display: bands` a shop is told the level and no number. When the next hold ends is told once it
 * is sold out, where a buyer may want to wait: before, each checkout would be seen by it.
 */
export function showAvailability(
  one: Availability,
  role: Role | undefined,
): z.infer<typeof schemas.availability> {
  const { sku, active, display } = one;
  const level = levelOf(one.sellable);
  if (display === 'bands' && role !== 'operator') {
    const none = { available: null, sellable: null, held: null, sold: null, total: null };
    return {
      ...{ sku, active, display, level, ...none, safety_stock: null },
      next_release_at: level === 'sold_out' ? one.nextReleaseAt : null,
      as_of: one.asOf,
    };
  }
  return {
    ...{ sku, active, display, level },
    ...showCounts(one),
    next_release_at: one.nextReleaseAt,
    as_of: one.asOf,
    ...(one.bins === null
      ? {}
      : { bins: one.bins.map((bin) => ({ code: bin.code, ...showCounts(bin) })) }),
  };
}

function showCounts(counts: BinAvailability | Availability) {
  return {
    available: counts.available,
    sellable: counts.sellable,
    held: counts.held,
    sold: counts.sold,
    total: counts.total,
    safety_stock: counts.safetyStock,
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

export function showStatement(
  { sku, asOf, opening, closing, bins, items, nextCursor }: Statement,
  { from, to }: { from?: string | undefined; to?: string | undefined },
): z.infer<typeof schemas.statement> {
  return {
    ...{ sku, from: from ?? null, to: to ?? null, as_of: asOf, opening, closing, bins },
    items: items.map(showMovement),
    next_cursor: nextCursor,
  };
}

export function showPage<Row, Item>(
  page: { items: Row[]; nextCursor: string | null },
  show: (row: Row) => Item,
): { items: Item[]; next_cursor: string | null } {
  return { items: page.items.map(show), next_cursor: page.nextCursor };
}
