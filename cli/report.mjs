/**
 * What the launcher says, for a person (aligned lines) or for a program (`--json`: one JSON line per
 * step on stdout, nothing else). A step that failed makes the exit code 1.
 */
const width = 20;

export class Report {
  failures = 0;
  #json;
  #started = performance.now();

  constructor(json) {
    this.#json = json;
  }

  /**
   * @param {string} step one or two words
   * @param {string} text what was found, installed or shown
   * @param {object} [checked] the facts behind it, for `--json`
   */
  step(step, text, checked) {
    this.#line(step, text, { ok: true, checked });
  }

  fail(step, text, checked) {
    this.failures += 1;
    this.#line(step, text, { ok: false, checked });
  }

  /** A heading or a box: only for people. */
  prose(text) {
    if (!this.#json) console.log(text);
  }

  #line(step, text, { ok, checked }) {
    const seconds = Number(((performance.now() - this.#started) / 1000).toFixed(1));
    if (this.#json) {
      console.log(JSON.stringify({ step, ok, seconds, text, ...(checked && { checked }) }));
      return;
    }
    const [first, ...rest] = text.split('\n');
    const label = ok ? step : `FAILED ${step}`;
    console.log(`  ${label.padEnd(width)} ${first}`);
    for (const line of rest) console.log(`  ${''.padEnd(width)} ${line}`);
  }

  get seconds() {
    return (performance.now() - this.#started) / 1000;
  }
}
