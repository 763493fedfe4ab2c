import { setCurrentDetails, upsertSearchAttributes, workflowInfo } from '@temporalio/workflow';
import type { Line } from '../db/values.js';
import { skusThatFit, wordsFor } from './lines.js';
import { holdSkus, holdStatus } from './searchAttributes.js';
import type { HoldRequest, Stage } from './messages.js';

const maxNotes = 20;

/** What an operator sees of a hold in the Temporal UI while it runs. */
export class Board {
  stage: Stage = 'CLAIMING';
  expiresAt: string | null = null;
  readonly notes: string[] = [];
  readonly #request: HoldRequest;
  #took: readonly Line[] | undefined;

  constructor(request: HoldRequest) {
    this.#request = request;
    this.#show();
  }

  /** @param took what a cart turned out to hold: the start could not say it */
  become(stage: Stage, took?: readonly Line[]): void {
    if (stage === this.stage) return;
    this.stage = stage;
    this.#took ??= took;
    if (this.#request.indexed) {
      const skus = took === undefined ? [] : [{ key: holdSkus, value: skusThatFit(took) }];
      upsertSearchAttributes([{ key: holdStatus, value: stage }, ...skus]);
    }
    this.#show();
  }

  until(expiresAt: string): void {
    this.expiresAt = expiresAt;
    this.#show();
  }

  /** What a release has left; a product of which nothing is left is not found by it any more. */
  holds(left: Line[]): void {
    this.note(`still held: ${left.map(({ sku, quantity }) => `${quantity} x ${sku}`).join(', ')}`);
    if (!this.#request.indexed) return;
    // Those that were indexed at all: a list has a limit.
    const indexed = workflowInfo().typedSearchAttributes.get(holdSkus) ?? [];
    const value = indexed.filter((sku) => left.some((line) => line.sku === sku));
    if (value.length < indexed.length) upsertSearchAttributes([{ key: holdSkus, value }]);
  }

  note(words: string): void {
    this.notes.push(words);
    if (this.notes.length > maxNotes) this.notes.shift();
    this.#show();
  }

  #show(): void {
    const until =
      this.stage === 'HELD' && this.expiresAt !== null ? ` until ${this.expiresAt}` : '';
    const took = this.#took === undefined ? [] : [`from the cart: ${wordsFor(this.#took)}`];
    const words = [...took, ...this.notes].map((note) => `- ${note}`);
    setCurrentDetails([`**${this.stage}**${until}`, ...words].join('\n'));
  }
}
