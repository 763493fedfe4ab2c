import { setTimeout as pause } from 'node:timers/promises';
import { adjust } from '../../db/adjust.js';
import { cancel } from '../../db/cancel.js';
import { claim } from '../../db/claim.js';
import { confirm } from '../../db/confirm.js';
import { expire } from '../../db/expire.js';
import { extend } from '../../db/extend.js';
import { recordPayment } from '../../db/recordPayment.js';
import type { PaymentEvent } from '../../db/recordPayment.js';
import { restock } from '../../db/restock.js';
import type { Line } from '../../db/values.js';
import { dice } from './dice.js';
import type { Dice } from './dice.js';
import type { Call, Lane, Listed } from './lane.js';
import type { World } from './world.js';

/** A hold that a claim was answered with, as the callers know it. */
interface Known {
  request: Listed;
  /** Its end in microseconds, to the millisecond of the answer. */
  endsAt: number;
  closed: boolean;
}

/** What may happen in a slot, and how often. */
const kinds: [number, (play: Play, dice: Dice, slot: number) => Promise<unknown>][] = [
  [40, (play, dice, slot) => play.claimSome(dice, slot)],
  [4, (play, dice) => play.repeatClaim(dice)],
  [5, (play, dice, slot) => play.zombieClaim(dice, slot)],
  [20, (play, dice, slot) => play.paySome(dice, slot)],
  [7, (play, dice) => play.expireSome(dice)],
  [5, (play, dice) => play.cancelSome(dice)],
  [6, (play, dice, slot) => play.extendSome(dice, slot)],
  [3, (play, dice, slot) => play.changeStock(dice, slot)],
  [2, (play, dice, slot) => play.move(dice, slot)],
  [3, (play, dice) => play.lane.jump(play.lane.latest + dice.between(0, 800_000))],
  [4, (play, dice, slot) => play.lockedOverTheEnd(dice, slot)],
];
const weights = kinds.reduce((sum, [weight]) => sum + weight, 0);

/**
 * Plays a history of 24 to 60 slots on 8 to 32 connections. The seed decides what each slot does; when
 * its calls meet is the machine's.
 */
export async function play(lane: Lane, world: World, seed: number): Promise<void> {
  const plan = dice(seed, 1);
  const connections = plan.between(8, 32);
  const slots = plan.between(24, 60);
  await lane.begin(connections);
  const history = new Play(lane, world);
  let next = 0;
  const worker = async () => {
    for (let slot = next++; slot < slots; slot = next++) {
      const own = dice(seed, 100 + slot);
      // The first calls are claims: nothing else has anything to do yet.
      let at = slot < 3 ? 0 : own.roll() * weights;
      const [, act] = kinds.find(([weight]) => (at -= weight) < 0)!;
      await act(history, own, slot);
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  await history.settle();
}

export class Play {
  readonly lane: Lane;
  readonly #world: World;
  readonly #requests: { request: Listed; answered: boolean }[] = [];
  readonly #known: Known[] = [];
  readonly #payments: PaymentEvent[] = [];

  constructor(lane: Lane, world: World) {
    this.lane = lane;
    this.#world = world;
  }

  async claimSome(dice: Dice, slot: number): Promise<void> {
    await this.#claim(this.#request(dice, slot));
  }

  /** An earlier claim again, answered or not; sometimes its key with another body. */
  async repeatClaim(dice: Dice): Promise<void> {
    if (this.#requests.length === 0) return;
    const { request, answered } = dice.pick(this.#requests);
    if (answered && dice.chance(0.3)) {
      await this.#claim({ ...request, requestHash: 'another body' });
    } else await this.#claim(request);
  }

  /** The same claim twice at nearly the same time: a retry overtakes a slow first attempt. */
  async zombieClaim(dice: Dice, slot: number): Promise<void> {
    const request = this.#request(dice, slot);
    const late = dice.between(0, 4);
    await Promise.all([
      this.#claim(request),
      pause(late).then(() => this.#claim(request)),
      ...(dice.chance(0.5) ? [pause(late * 3).then(() => this.#claim(request))] : []),
    ]);
  }

  /** Most payments are aimed at the last 3 ms before or after a hold's end, together with whatever else wants the hold then. */
  async paySome(dice: Dice, slot: number): Promise<void> {
    const aimed = dice.chance(0.6);
    const known =
      (aimed || dice.chance(0.7) ? this.#nextToEnd(dice, aimed ? 150_000 : 0) : this.#any(dice)) ??
      (await this.#claim(this.#request(dice, slot)));
    if (!known) return;
    const around = (from: number, to: number) =>
      aimed ? known.endsAt + dice.between(from, to) : undefined;
    const work: Promise<unknown>[] = [this.#pay(dice, known, `${slot}`, around(-3000, 3000))];
    if (aimed) {
      if (dice.chance(0.5)) work.push(this.#expire(known, around(0, 3000)));
      if (dice.chance(0.4)) {
        const lines = known.request.lines.map(({ sku }) => ({ sku, quantity: dice.between(1, 3) }));
        work.push(this.#claim({ ...this.#rival(dice, slot), lines }, around(0, 3000)));
      }
      if (dice.chance(0.1)) work.push(this.#cancel(known, around(-2000, 2000)));
      if (dice.chance(0.1)) work.push(this.#extend(known, 1, `${slot} volley`, around(-3000, 500)));
      if (dice.chance(0.15))
        work.push(this.#pay(dice, known, `${slot} second`, around(-3000, 3000)));
    }
    await Promise.all(work);
  }

  async expireSome(dice: Dice): Promise<void> {
    const known = dice.chance(0.5) ? this.#nextToEnd(dice) : this.#any(dice);
    if (!known) return;
    await this.#expire(
      known,
      dice.chance(0.5) ? known.endsAt + dice.between(-1000, 2000) : undefined,
    );
  }

  async cancelSome(dice: Dice): Promise<void> {
    const known = this.#any(dice);
    if (known) await this.#cancel(known);
  }

  async extendSome(dice: Dice, slot: number): Promise<void> {
    const known = this.#nextToEnd(dice) ?? this.#any(dice);
    if (!known) return;
    const seconds = dice.between(1, 3);
    const requestId = `${slot}`;
    const twice = dice.chance(0.5);
    await Promise.all([
      this.#extend(known, seconds, requestId),
      ...(twice
        ? [pause(dice.between(0, 3)).then(() => this.#extend(known, seconds, requestId))]
        : []),
    ]);
  }

  async changeStock(dice: Dice, slot: number): Promise<void> {
    const product = dice.pick(this.#world.products);
    const { code } = dice.pick(product.bins);
    const delta = dice.pick([-3, -2, -1, 1, 2, 3]);
    const arrived = delta > 0 && dice.chance(0.5);
    const change = () => this.#stock(product.sku, code, delta, `${slot}`, arrived);
    await Promise.all(dice.chance(0.3) ? [change(), change()] : [change()]);
  }

  /** From one bin to another: two adjustments, the second only when the first was done. */
  async move(dice: Dice, slot: number): Promise<void> {
    const product = dice.pick(this.#world.products);
    const [from, to] = [dice.pick(product.bins), dice.pick(product.bins)];
    const units = dice.between(1, 2);
    const taken = await this.#stock(product.sku, from.code, -units, `${slot} from`, false);
    if (taken.answer?.outcome === 'DONE') {
      await this.#stock(product.sku, to.code, units, `${slot} to`, false);
    }
  }

  /**
   * Somebody else's transaction holds the hold's row (or a bin of it) while its end passes, and those
   * who decide about the hold stand in line behind it. What was decided before the wait is then wrong.
   * Random calls hardly ever meet like this.
   */
  async lockedOverTheEnd(dice: Dice, slot: number): Promise<void> {
    const asked = this.#request(dice, slot);
    // Nobody else is told of it: a payment that is seen waiting must be the one sent here.
    const known = await this.#claim(
      { ...asked, lines: asked.lines.slice(0, 1), holdSeconds: 3 },
      undefined,
      { alone: true },
    );
    if (!known) return;
    const { holdId, lines } = known.request;
    const onHold = dice.chance(0.7);
    const touched = dice.chance(0.5);
    const event = this.#event(dice, known, `${slot} waited`);
    const rival = {
      ...this.#rival(dice, slot),
      lines: lines.map(({ sku }) => ({ sku, quantity: 1 })),
    };
    let sure = false;
    let payment: Promise<Call> | undefined;
    let others: Promise<unknown>[] = [];
    await this.lane.other(async (client) => {
      const { rows } = await client.query<{ pid: number }>(
        onHold
          ? 'select pg_backend_pid() as pid from tahan.holds where id = $1 for no key update'
          : `select pg_backend_pid() as pid from tahan.bins where id =
               (select min(bin_id) from tahan.allocations where hold_id = $1) for no key update`,
        [holdId],
      );
      if (rows.length === 0) return;
      const waiting = async (call: string, forMs: number) => {
        for (const until = Date.now() + forMs; Date.now() < until; await pause(1)) {
          // What it says of other sessions is otherwise frozen for the transaction.
          await client.query('select pg_stat_clear_snapshot()');
          const { rowCount } = await client.query(
            `select from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'
               and position($2 in query) > 0 and $3 = any (pg_blocking_pids(pid))`,
            [this.lane.name, call, rows[0]!.pid],
          );
          if (rowCount! > 0) return true;
        }
        return false;
      };
      const pay = () => {
        payment = this.lane.call({ what: 'pay', event }, (db) => recordPayment(db, event));
        return waiting('tahan.record_payment(', onHold ? 400 : 5);
      };
      const rest = () => {
        others = [
          this.#expire(known, known.endsAt + 100),
          this.#claim(rival, known.endsAt + 100),
          ...(dice.chance(0.2) ? [this.#cancel(known)] : []),
        ];
        return waiting('tahan.expire(', 20);
      };
      if (onHold) {
        const queued = await pay();
        // Its clock was read before the wait, and that was before the end.
        sure = queued && (await this.lane.now(client)) < known.endsAt;
        await rest();
      } else {
        await rest();
        await pay();
      }
      await this.lane.jump(known.endsAt + 2000, client);
      if (touched && onHold) {
        await client.query('update tahan.holds set reason = reason where id = $1', [holdId]);
      }
    });
    const call = await payment;
    if (call) {
      call.mustBeInTime = sure;
      this.#payments.push(event);
      if (dice.chance(0.8)) await this.#confirm(event);
    }
    await Promise.all(others);
    this.#known.push(known);
  }

  /** Every recorded payment gets its confirm, as the workflow would ask; then the last holds end, and a claim for all that is left must get it: nothing has leaked. */
  async settle(): Promise<void> {
    const open = new Set(this.#payments);
    // A late payment that is told to wait for a pending one comes again after it.
    for (let round = 0; open.size > 0 && round < 3; round += 1) {
      await Promise.all(
        [...open].map(async (event) => {
          const { answer } = await this.#confirm(event);
          if (answer?.outcome !== 'PAYMENT_PENDING') open.delete(event);
        }),
      );
    }
    await this.lane.jump(
      Math.max(this.lane.latest, ...this.#known.map(({ endsAt }) => endsAt)) + 2000,
    );
    const skus = this.#world.products.map(({ sku }) => sku);
    const [row] = await this.lane.query<{ left: { sku: string; sellable: number }[] }>(
      'select tahan.availability($1) as left',
      [skus],
    );
    const lines = row!.left
      .map(({ sku, sellable }) => ({
        sku,
        quantity: Math.min(
          sellable,
          this.#world.products.find((product) => product.sku === sku)!.limit ?? Infinity,
        ),
      }))
      .filter(({ quantity }) => quantity > 0);
    if (lines.length > 0) await this.#claim(this.#drain('all', lines), undefined, { drain: true });
    const unlimited = this.#world.products.find(({ limit }) => limit === null);
    if (unlimited) {
      await this.#claim(this.#drain('one more', [{ sku: unlimited.sku, quantity: 1 }]), undefined, {
        drain: true,
      });
    }
  }

  #drain(key: string, lines: Line[]): Listed {
    return {
      holdId: this.#world.holdId(key === 'all' ? 9001 : 9002),
      buyerId: `${this.#world.name}-drain`,
      idempotencyKey: key,
      requestHash: 'hash',
      lines,
      holdSeconds: 1,
      claimDeadline: instant(this.lane.latest + 20_000_000),
      order: false,
      metadata: {},
    };
  }

  #request(dice: Dice, slot: number): Listed {
    const skus = [...this.#world.products].sort(() => dice.roll() - 0.5).map(({ sku }) => sku);
    const lines = skus
      .slice(0, dice.chance(0.35) ? 2 : 1)
      .map((sku) => ({ sku, quantity: dice.pick([1, 1, 2, 3]) }));
    const hurried = dice.chance(0.03);
    return {
      holdId: this.#world.holdId(slot),
      buyerId: dice.pick(this.#world.buyers),
      idempotencyKey: `key ${slot}`,
      requestHash: 'hash',
      lines,
      holdSeconds: dice.pick([null, 1, 1, 2]),
      claimDeadline: instant(this.lane.latest + (hurried ? dice.between(0, 20_000) : 8_000_000)),
      order: dice.chance(0.4),
      metadata: {},
    };
  }

  /** A second claim of the same slot, under a key of its own. */
  #rival(dice: Dice, slot: number): Listed {
    return {
      ...this.#request(dice, slot),
      holdId: this.#world.holdId(1000 + slot),
      idempotencyKey: `rival ${slot}`,
    };
  }

  async #claim(
    request: Listed,
    at?: number,
    { drain = false, alone = false } = {},
  ): Promise<Known | undefined> {
    const entry = { request, answered: false };
    if (!drain && !alone && request.requestHash === 'hash') this.#requests.push(entry);
    const { answer } = await this.lane.call(
      { what: 'claim', request, drain },
      (db) => claim(db, request),
      at,
    );
    entry.answered = answer !== undefined && answer.outcome !== 'CLAIM_TOO_LATE';
    if (answer?.outcome === 'HELD') {
      const endsAt = microseconds(answer['expiresAt']);
      const known = { request, endsAt, closed: false };
      if (!alone) this.#known.push(known);
      return known;
    }
    // A few refused ones stay in the game: a payment for one of them must be refunded.
    if (answer?.outcome === 'INSUFFICIENT_STOCK' && !drain && this.#known.length % 5 === 0) {
      this.#known.push({ request, endsAt: 0, closed: true });
    }
    return undefined;
  }

  #event(dice: Dice, known: Known, id: string): PaymentEvent {
    const { holdId, order, lines } = known.request;
    const price = (sku: string) =>
      this.#world.products.find((product) => product.sku === sku)!.priceMinor;
    const total = lines.reduce((sum, { sku, quantity }) => sum + quantity * (price(sku) ?? 0), 0);
    const wrong = order && dice.chance(0.12);
    return {
      provider: 'model',
      paymentId: `${this.#world.name} ${id}`,
      eventId: dice.chance(0.5) ? `${this.#world.name} ${id} event` : null,
      status: 'succeeded',
      holdId,
      orderNumber: null,
      amountMinor: total + (wrong ? 1 : 0),
      currency: 'EUR',
      payload: {},
    };
  }

  /** A payment as a provider sends it: sometimes a failure before, a repeat, a refund after, or the same id for another hold. */
  async #pay(dice: Dice, known: Known, id: string, at?: number): Promise<void> {
    const event = this.#event(dice, known, id);
    const send = (change: Partial<PaymentEvent>, at?: number) => {
      const sent = { ...event, ...change };
      return this.lane.call({ what: 'pay', event: sent }, (db) => recordPayment(db, sent), at);
    };
    if (dice.chance(0.1)) await send({ status: 'failed', eventId: null });
    await Promise.all([
      send({}, at),
      ...(dice.chance(0.1) ? [send({}, at)] : []),
      ...(dice.chance(0.05) ? [send({ status: 'failed', eventId: null }, at)] : []),
    ]);
    this.#payments.push(event);
    const refunded = dice.chance(0.08);
    const leftOpen = dice.chance(0.15);
    if (refunded && dice.chance(0.5)) await send({ status: 'refunded', eventId: null });
    if (!leftOpen) {
      await Promise.all([
        this.#confirm(event),
        ...(dice.chance(0.2) ? [this.#confirm(event)] : []),
      ]);
    }
    if (refunded) await send({ status: 'refunded', eventId: null });
    const other = this.#any(dice);
    if (other && other !== known && dice.chance(0.05)) {
      await send({ holdId: other.request.holdId, eventId: null });
    }
  }

  #confirm(event: PaymentEvent): Promise<Call> {
    const payment = { provider: event.provider, paymentId: event.paymentId };
    const holdId = event.holdId!;
    return this.lane.call({ what: 'confirm', holdId, payment }, (db) =>
      confirm(db, holdId, payment),
    );
  }

  async #expire(known: Known, at?: number): Promise<void> {
    const { holdId } = known.request;
    const { answer } = await this.lane.call(
      { what: 'expire', holdId },
      (db) => expire(db, holdId),
      at,
    );
    if (answer?.outcome === 'EXPIRED' || answer?.outcome === 'ALREADY') known.closed = true;
  }

  async #cancel(known: Known, at?: number): Promise<void> {
    const { holdId } = known.request;
    await this.lane.call(
      { what: 'cancel', holdId },
      (db) => cancel(db, holdId, 'changed my mind', 'buyer'),
      at,
    );
    known.closed = true;
  }

  async #extend(known: Known, seconds: number, requestId: string, at?: number): Promise<void> {
    const { holdId } = known.request;
    const { answer } = await this.lane.call(
      { what: 'extend', holdId, seconds, requestId },
      (db) => extend(db, holdId, seconds, requestId, 'buyer'),
      at,
    );
    if (answer?.outcome === 'EXTENDED')
      known.endsAt = Math.max(known.endsAt, microseconds(answer['expiresAt']));
  }

  #stock(
    sku: string,
    bin: string,
    delta: number,
    requestId: string,
    arrived: boolean,
  ): Promise<Call> {
    const change = { sku, bin, reason: 'count', actor: 'operator', requestId, reference: null };
    return this.lane.call({ what: 'stock', sku, bin, delta, requestId }, (db) =>
      arrived ? restock(db, { ...change, quantity: delta }) : adjust(db, { ...change, delta }),
    );
  }

  /** One of the three holds that end next, in so many microseconds at the earliest: a call takes a while to arrive. */
  #nextToEnd(dice: Dice, from = -2000): Known | undefined {
    const open = this.#known
      .filter(({ closed, endsAt }) => !closed && endsAt > this.lane.latest + from)
      .sort((a, b) => a.endsAt - b.endsAt);
    return open.length === 0 ? undefined : dice.pick(open.slice(0, 3));
  }

  #any(dice: Dice): Known | undefined {
    return this.#known.length === 0 ? undefined : dice.pick(this.#known.slice(-20));
  }
}

function instant(us: number): string {
  return new Date(us / 1000).toISOString();
}

function microseconds(instant: unknown): number {
  return Date.parse(instant as string) * 1000;
}
