import { setCurrentDetails, upsertSearchAttributes } from '@temporalio/workflow';
import { holdStatus } from './searchAttributes.js';
import type { HoldRequest, Stage } from './messages.js';

const maxNotes = 20;

/** What an operator sees of a hold in the Temporal UI while it runs. */
export class Board {
  stage: Stage = 'CLAIMING';
  expiresAt: string | null = null;
  readonly notes: string[] = [];
  readonly #request: HoldRequest;

  constructor(request: HoldRequest) {
    this.#request = request;
    this.#show();
  }

  become(stage: Stage): void {
    if (stage === this.stage) return;
    this.stage = stage;
    if (this.#request.indexed) upsertSearchAttributes([{ key: holdStatus, value: stage }]);
    this.#show();
  }

  until(expiresAt: string): void {
    this.expiresAt = expiresAt;
    this.#show();
  }

  note(words: string): void {
    this.notes.push(words);
    if (this.notes.length > maxNotes) this.notes.shift();
    this.#show();
  }

  #show(): void {
    const until =
      this.stage === 'HELD' && this.expiresAt !== null ? ` until ${this.expiresAt}` : '';
    setCurrentDetails(
      [`**${this.stage}**${until}`, ...this.notes.map((note) => `- ${note}`)].join('\n'),
    );
  }
}
