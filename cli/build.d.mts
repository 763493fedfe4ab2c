export function build(say: (step: string) => void): Promise<string>;
