import { Problem } from './errors.js';

/** A header that may come once: Node joins or drops repeated ones, so the raw list is counted. */
export function theOne(
  { rawHeaders }: { rawHeaders: string[] },
  name: string,
  code: 'INVALID_REQUEST' | 'UNAUTHENTICATED' | 'SIGNATURE_INVALID',
): string | undefined {
  const values = rawHeaders.filter(
    (_, index) => index % 2 === 1 && rawHeaders[index - 1]!.toLowerCase() === name,
  );
  if (values.length > 1) {
    throw new Problem(code, `The header ${name} was sent ${values.length} times.`);
  }
  return values[0];
}

/** 1 to 255 printable ASCII characters, or undefined where a route does without. */
export function idempotencyKey(
  request: { rawHeaders: string[] },
  required: boolean,
): string | undefined {
  const key = theOne(request, 'idempotency-key', 'INVALID_REQUEST');
  if (key === undefined || key === '') {
    if (!required) return undefined;
    throw new Problem('IDEMPOTENCY_KEY_REQUIRED', 'This request needs an Idempotency-Key.');
  }
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw new Problem(
      'INVALID_REQUEST',
      'The Idempotency-Key must be 1 to 255 printable ASCII characters.',
    );
  }
  return key;
}
