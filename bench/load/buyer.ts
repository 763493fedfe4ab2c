import { createHmac, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer, Connections } from './connections.js';
import type { Plan, Visit } from './plan.js';

/** A real client does not come back in the same millisecond as all others. */
const jitterMs = 250;

/**
 * One buyer, who asks for one unit until the shop has decided, and pays for it where the plan says
 * so. Another buyer and another key each time; repeats are of the same key.
 *
 * @param told hears every answer, as `201` or `503 SALE_BUSY`
 */
export async function visit(
  plan: Plan,
  { number, intendedMs }: { number: number; intendedMs: number },
  shop: Connections,
  told: (answer: string) => void,
): Promise<Visit> {
  const made: Visit = {
    end: 'GAVE_UP',
    holdId: null,
    expiresMs: null,
    intendedMs,
    sentMs: 0,
    decidedMs: 0,
    payMs: null,
    paidMs: null,
  };
  const buyer = `${plan.name}-${number}`;
  const body = JSON.stringify({
    buyer_id: buyer,
    lines: [{ sku: plan.skus[number % plan.skus.length], quantity: 1 }],
    ...holdSeconds(plan),
  });
  const ask = async (path: string, headers: string, content: string) => {
    const answer = await shop.ask(
      `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n${headers}` +
        `content-length: ${Buffer.byteLength(content)}\r\n\r\n${content}`,
    );
    told(nameOf(answer));
    return answer;
  };
  const givesUpMs = intendedMs + plan.patienceMs;
  /** Repeats what is not decided, as its Retry-After says; undefined when patience has ended. */
  const persist = async (send: () => Promise<Answer>) => {
    for (;;) {
      const answer = await send();
      if (![202, 429, 503].includes(answer.status)) return answer;
      const retryAfter = Number(/\r\nretry-after: *(\d+)/i.exec(answer.head)?.[1] ?? 1);
      const waitMs = retryAfter * 1000 + Math.random() * jitterMs;
      if (Date.now() + waitMs > givesUpMs) return undefined;
      await sleep(waitMs);
    }
  };

  for (let key = 1; ; key += 1) {
    const headers = `authorization: Bearer ${plan.key}\r\nidempotency-key: ${buyer}-${key}\r\n`;
    const answer = await persist(() => {
      made.sentMs = Date.now();
      return ask('/v1/holds', headers, body);
    });
    made.decidedMs = Date.now();
    if (answer === undefined) return { ...made, end: 'GAVE_UP' };
    if (answer.status === 201 || answer.status === 200) {
      made.end = 'HELD';
      made.holdId = /"id":"([0-9a-f-]{36})"/.exec(answer.body)?.[1] ?? null;
      made.expiresMs = Date.parse(/"expires_at":"([^"]+)"/.exec(answer.body)?.[1] ?? '');
      break;
    }
    made.end = nameOf(answer) === '409 INSUFFICIENT_STOCK' ? 'REFUSED' : 'FAILED';
    if (plan.insistAfterMs === undefined || made.end === 'FAILED') return made;
    if (Date.now() + plan.insistAfterMs > givesUpMs) return made;
    await sleep(plan.insistAfterMs);
  }
  if (!plan.pays) return made;

  made.payMs = Date.now();
  const event = paymentEvent(made.holdId!);
  const paid = await persist(() => ask('/v1/payments/events', signed(plan.secret, event), event));
  if (paid !== undefined) made.end = paid.status === 200 ? 'PAID' : 'FAILED';
  made.paidMs = Date.now();
  return made;
}

function holdSeconds({ holds }: Plan): { hold_seconds?: number } {
  if (holds === undefined) return {};
  if ('seconds' in holds) return { hold_seconds: holds.seconds };
  return { hold_seconds: Math.max(1, Math.floor((holds.untilMs - Date.now()) / 1000)) };
}

function paymentEvent(holdId: string): string {
  return JSON.stringify({
    type: 'payment.succeeded',
    timestamp: new Date().toISOString(),
    data: { payment_id: randomUUID(), hold_id: holdId, amount_minor: 100, currency: 'EUR' },
  });
}

/** As Standard Webhooks has it; its package would take several times the CPU. */
function signed(secret: string, content: string): string {
  const [id, seconds] = [randomUUID(), Math.floor(Date.now() / 1000)];
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const mac = createHmac('sha256', key).update(`${id}.${seconds}.${content}`).digest('base64');
  return `webhook-id: ${id}\r\nwebhook-timestamp: ${seconds}\r\nwebhook-signature: v1,${mac}\r\n`;
}

function nameOf({ status, body }: Answer): string {
  if (status === 0) return 'no answer';
  const code = status >= 400 ? /"code":"([A-Z_]+)"/.exec(body)?.[1] : undefined;
  return code === undefined ? String(status) : `${status} ${code}`;
}
