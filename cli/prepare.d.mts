export const root: string;
export function prepare(say: (step: string) => void): Promise<string>;
export function packagesInstalled(): boolean;
export function nodeTooOld(): string | undefined;
