import { ApplicationFailure, HandlerUnfinishedPolicy } from '@temporalio/common';
import {
  CancellationScope,
  allHandlersFinished,
  condition,
  log,
  setHandler,
} from '@temporalio/workflow';
import type { InTurn } from '../activities/turns.js';
import type { CancelOutcome } from '../db/cancel.js';
import type { ExtendOutcome } from '../db/extend.js';
import type { ReleaseOutcome } from '../db/release.js';
import type { Line, PaymentRef } from '../db/values.js';
import { Board } from './board.js';
import { startSettlement } from './effects.js';
import { Inbox, nameOf } from './inbox.js';
import type { Incoming, Payment } from './inbox.js';
import * as messages from './messages.js';
import type {
  CancelRequest,
  Claimed,
  ExtendRequest,
  HoldRequest,
  HoldResult,
  ReleaseRequest,
} from './messages.js';
import * as steps from './steps.js';
import { PaymentWindow } from './window.js';

/**
 * One hold, from the claim to its end (R51). Postgres decides what happened, this decides when to
 * ask. Handlers fill the inbox; the loop below is the only place that acts: one message at a time,
 * the clock last.
 */
export async function hold(request: HoldRequest): Promise<HoldResult> {
  const { holdId } = request;
  const board = new Board(request);
  const window = new PaymentWindow();
  const inbox = new Inbox();
  /** Payments that were found in the way and tried; forgotten when a pause is over. */
  const tried = new Set<string>();
  let gaveUp = false;
  let answer: Claimed | undefined;

  setHandler(messages.claimed, waitForAnswer, {
    unfinishedPolicy: HandlerUnfinishedPolicy.ABANDON,
  });
  setHandler(messages.state, () => ({
    stage: board.stage,
    expiresAt: board.expiresAt,
    waiting: inbox.waiting,
    payments: inbox.payments,
    dropped: inbox.dropped,
    notes: [...board.notes],
  }));

  return CancellationScope.nonCancellable(async () => {
    await claim();
    for (;;) {
      const message = inbox.next();
      if (message) await handle(message);
      else if (board.stage === 'HELD' && window.over) await expire();
      else if (board.stage === 'HELD') await window.wait(() => inbox.waiting > 0);
      else if (!answered()) await condition(() => inbox.waiting > 0 || answered());
      else return end(); // with no await since the inbox was seen empty: nothing can be lost
    }
  });

  async function claim(): Promise<void> {
    const claim = await steps.claimUnits(request);
    if (claim.outcome === 'CLAIM_TOO_LATE') return board.become('CLAIM_TOO_LATE');
    answer = claim;
    if (claim.outcome === 'HELD') held(claim);
    else if (claim.outcome === 'ALREADY' && claim.status === 'HELD') held(claim);
    else if (claim.outcome === 'ALREADY') board.become(claim.status, claim.lines);
    // The row belongs to another request with this key, and it needs a workflow like any other: the
    // window is over at once, and what expire answers says how the hold stands.
    else if (claim.outcome === 'KEY_REUSED') board.become('HELD');
    else board.become(claim.outcome);
  }

  async function handle(message: Incoming): Promise<void> {
    switch (message.kind) {
      case 'payment':
        return pay(message.payment);
      case 'cancel':
        message.answer = await cancel(message.request);
        return;
      case 'extend':
        message.answer = await extend(message.request);
        return;
      case 'release':
        message.answer = await release(message.request);
        return;
    }
  }

  async function pay({ recorded: known, ...payment }: Payment): Promise<void> {
    // Whoever says so wrongly is found out: it is MISSING then.
    if (known && (await settle(payment))) return;
    const event = { ...payment, holdId, orderNumber: null, payload: payment };
    const recorded = await steps.recordPayment(event);
    if (recorded.outcome === 'UNMATCHED' || recorded.outcome === 'OTHER_HOLD')
      board.note(`payment ${nameOf(payment)}: ${recorded.outcome}`);
    else if (recorded.status !== 'succeeded')
      board.note(`payment ${nameOf(payment)}: ${recorded.status}`);
    else if (!(await settle(payment))) board.note(`payment ${nameOf(payment)}: MISSING`);
  }

  /**
   * Asked also when the hold is closed: confirm writes what is to become of the money. False when no such payment is
   * recorded.
   */
  async function settle({ provider, paymentId }: PaymentRef): Promise<boolean> {
    const payment = { provider, paymentId };
    for (;;) {
      const confirmed = await steps.confirm(holdId, payment);
      if (confirmed.outcome === 'MISSING') return false;
      if (confirmed.outcome === 'CONFIRMED' || confirmed.outcome === 'ALREADY_CONFIRMED') {
        board.become('CONFIRMED');
        return true;
      }
      if (confirmed.outcome !== 'PAYMENT_PENDING') {
        const rest = confirmed.outcome === 'TOO_LATE' ? `, ${confirmed.settlement}` : '';
        board.note(`payment ${nameOf(payment)}: ${confirmed.outcome}${rest}`);
        // Money that confirms nothing goes its own way, at its own pace: back, or to an operator.
        await startSettlement(holdId, payment);
        return true;
      }
      if (!(await clearTheWay(confirmed.payment))) {
        board.note(`payment ${nameOf(payment)} waits for ${nameOf(confirmed.payment)}`);
        return true;
      }
    }
  }

  async function expire(): Promise<void> {
    if (gaveUp) tried.clear();
    gaveUp = false;
    const expired = await steps.expire(holdId);
    if (expired.outcome === 'NOT_DUE') waitFor(expired.remainingMs);
    else if (expired.outcome === 'PAYMENT_PENDING') await clearTheWay(expired.payment);
    else if (expired.outcome === 'ALREADY') board.become(expired.status);
    else board.become(expired.outcome);
  }

  async function cancel({ reason, actor }: CancelRequest): Promise<CancelOutcome> {
    for (;;) {
      const cancelled = await steps.cancel(holdId, reason, actor);
      if (cancelled.outcome === 'CANCELLED') board.become('CANCELLED');
      if (cancelled.outcome === 'ALREADY') board.become(cancelled.status);
      if (cancelled.outcome !== 'PAYMENT_PENDING' || !(await clearTheWay(cancelled.payment)))
        return cancelled;
    }
  }

  async function extend({ seconds, requestId, actor }: ExtendRequest): Promise<ExtendOutcome> {
    const extended = await steps.extend(holdId, seconds, requestId, actor);
    if (extended.outcome === 'EXTENDED') held(extended);
    if (extended.outcome === 'ALREADY') board.become(extended.status);
    return extended;
  }

  async function release(request: ReleaseRequest): Promise<ReleaseOutcome> {
    for (;;) {
      const released = await steps.release(holdId, request);
      if (released.outcome === 'ALREADY') board.become(released.status);
      if (released.outcome === 'RELEASED' && released.status === 'HELD') board.holds(released.left);
      if (released.outcome === 'RELEASED' && released.status === 'CANCELLED')
        board.become('CANCELLED');
      if (released.outcome !== 'PAYMENT_PENDING' || !(await clearTheWay(released.payment)))
        return released;
    }
  }

  /**
   * Confirms a payment that must come first. The same one in the way again is given up for a while:
   * asked without a brake, it was 22 rounds in 3.5 s.
   */
  async function clearTheWay(pending: PaymentRef): Promise<boolean> {
    const name = nameOf(pending);
    if (tried.has(name)) {
      gaveUp = true;
      window.pause();
      board.note(`payment ${name} stays pending: given up for now`);
      log.warn('a payment stays pending', { holdId, payment: name });
      return false;
    }
    tried.add(name);
    await settle(pending);
    return true;
  }

  function held(answer: InTurn & { remainingMs: number; expiresAt: string; lines?: Line[] }): void {
    board.become('HELD', answer.lines);
    board.until(answer.expiresAt);
    waitFor(answer.turnInMs ?? answer.remainingMs);
  }

  function waitFor(remainingMs: number): void {
    if (window.set(remainingMs)) return;
    window.pause();
    board.note('Postgres gave no remaining time: asked again later');
  }

  /** Nobody waits for us any more; after CLAIM_TOO_LATE `claimed` is left unanswered on purpose. */
  function answered(): boolean {
    return board.stage === 'CLAIM_TOO_LATE' ? inbox.asking === 0 : allHandlersFinished();
  }

  function end(): HoldResult {
    const outcome = board.stage as HoldResult['outcome'];
    if (outcome === 'MISSING') log.error('the hold has no row in Postgres', { holdId });
    // A failed run may be started again, so that the same key gets another chance.
    if (outcome === 'CLAIM_TOO_LATE') {
      const type = 'CLAIM_TOO_LATE';
      const details = [request.claimDeadline];
      throw ApplicationFailure.create({
        message: 'nothing was taken',
        type,
        details,
        nonRetryable: true,
      });
    }
    return answer?.outcome === outcome
      ? { ...answer, outcome }
      : { outcome, holdId, notes: board.notes };
  }

  function waitForAnswer(): Promise<Claimed> {
    return CancellationScope.nonCancellable(async () => {
      await condition(() => answer !== undefined);
      return answer!;
    });
  }
}
