import { Context } from '@temporalio/activity';
import type { Activities } from '../../activities/index.js';

/** Where an activity can be stopped: before it asks Postgres, or with the answer in its hand. */
export type Moment = 'before' | 'after';

export interface Gate {
  /** The activity stands there. */
  reached: boolean;
  /** The activity's attempt is over, whoever still listened to it. */
  passed: boolean;
  open(): void;
}

/** Stops activities on the real database at chosen moments, and sees how many of a hold run at once. */
export class Gates {
  /** The most activities of one hold that ever ran at once: more than 1 means two actors (H4). */
  mostAtOnce = 0;
  /** What was begun for each hold, in order. */
  readonly calls = new Map<string, string[]>();
  readonly #gates = new Map<string, { opened: Promise<void>; gate: Gate }>();
  readonly #running = new Map<string, number>();

  /** The next attempt of this activity for this hold stops there until `open`; later ones do not. */
  stopAt(holdId: string, name: keyof Activities, moment: Moment): Gate {
    let open = () => {};
    const opened = new Promise<void>((resolve) => (open = resolve));
    const gate = { reached: false, passed: false, open };
    this.#gates.set(`${holdId} ${name} ${moment}`, { opened, gate });
    return gate;
  }

  wrap(activities: Activities): Activities {
    const wrapped = Object.entries(activities).map(([name, work]) => {
      const call = work as (...args: unknown[]) => Promise<unknown>;
      return [name, (...args: unknown[]) => this.#pass(name, holdOf(args), () => call(...args))];
    });
    return Object.fromEntries(wrapped) as Activities;
  }

  async #pass(name: string, holdId: string, work: () => Promise<unknown>): Promise<unknown> {
    this.calls.set(holdId, [...(this.calls.get(holdId) ?? []), name]);
    // A settlement acts for itself, beside the hold.
    const own = Context.current().info.workflowType === 'hold' ? 1 : 0;
    const running = (this.#running.get(holdId) ?? 0) + own;
    this.#running.set(holdId, running);
    this.mostAtOnce = Math.max(this.mostAtOnce, running);
    const passed: (() => void)[] = [];
    try {
      passed.push(await this.#wait(`${holdId} ${name} before`));
      const answer = await work();
      passed.push(await this.#wait(`${holdId} ${name} after`));
      return answer;
    } finally {
      this.#running.set(holdId, (this.#running.get(holdId) ?? own) - own);
      for (const tell of passed) tell();
    }
  }

  async #wait(place: string): Promise<() => void> {
    const found = this.#gates.get(place);
    if (found === undefined) return () => {};
    this.#gates.delete(place);
    const { opened, gate } = found;
    gate.reached = true;
    // Whoever stands still must say that it is alive, as a slow statement would.
    const context = Context.current();
    const beat = context.info.isLocal ? undefined : setInterval(() => context.heartbeat(), 500);
    await opened;
    clearInterval(beat);
    return () => void (gate.passed = true);
  }
}

/** The hold that an activity is about: in its request or event, or its first argument. */
function holdOf([first]: unknown[]): string {
  return typeof first === 'string' ? first : (first as { holdId: string }).holdId;
}
