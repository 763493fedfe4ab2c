export class Report {
  constructor(json: boolean);
  failures: number;
  readonly seconds: number;
  step(step: string, text: string, checked?: object): void;
  fail(step: string, text: string, checked?: object): void;
  prose(text: string): void;
}
