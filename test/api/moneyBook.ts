import { expect } from 'vitest';
import type { z } from 'zod';
import type { PaymentProvider, RefundRequest } from '../../activities/payments/provider.js';
import type * as schemas from '../../api/schemas.js';
import { until } from '../workflows/engine.js';
import type { Service } from './service.js';

export type Payment = z.infer<typeof schemas.paymentRecord>;

/** A provider in memory with the book of what it has really sent back. */
export interface MoneyBook extends PaymentProvider {
  sent: RefundRequest[];
  /** What went back of one payment, in order. */
  of(paymentId: string): number[];
}

export function moneyBook(): MoneyBook {
  const sent: RefundRequest[] = [];
  const executed = ({ key }: RefundRequest) =>
    ({ outcome: 'EXECUTED', providerRef: `r-${key}` }) as const;
  return {
    sent,
    of: (paymentId) =>
      sent.filter((each) => each.paymentId === paymentId).map(({ amountMinor }) => amountMinor),
    findRefund: (request) =>
      Promise.resolve(sent.some(({ key }) => key === request.key) ? executed(request) : null),
    refund(request) {
      sent.push(request);
      return Promise.resolve(executed(request));
    },
  };
}

export async function paymentOf(service: Service, id: string): Promise<Payment> {
  const answer = await service.get<Payment>(`/v1/payments/default/${id}`, {
    key: service.operatorKey,
  });
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

/** Waits until a payment is settled like this. */
export async function settles(
  service: Service,
  id: string,
  settlement: Payment['settlement'],
): Promise<Payment> {
  let shown!: Payment;
  await until(
    `${id} is ${settlement}`,
    async () => {
      shown = await paymentOf(service, id);
      return shown.settlement === settlement;
    },
    60_000,
  );
  return shown;
}
