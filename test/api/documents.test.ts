import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { routes } from '../../api/app.js';
import { errors, errorsPage, Problem } from '../../api/errors.js';
import type { ErrorCode } from '../../api/errors.js';
import { openApiDocument } from '../../api/openapi.js';
import { root } from '../../cli/root.js';

const codes = Object.keys(errors) as ErrorCode[];

describe('what is written down', () => {
  it('docs/errors.md is the table of codes in api/errors.ts, word for word', () => {
    const page = readFileSync(join(root, 'docs/errors.md'), 'utf8');
    expect(page).toBe(errorsPage());
    const rows = page.split('\n').filter((line) => line.startsWith('| `'));
    expect(rows.map((row) => row.split('`')[1])).toEqual(codes);
  });

  it('api/openapi.json is what the routes say: npm run openapi', () => {
    const text = readFileSync(join(root, 'api/openapi.json'), 'utf8');
    expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(openApiDocument(routes))));
  });

  it('every route is in the document, with its answers and the statuses of its codes', () => {
    const { paths } = openApiDocument(routes) as {
      paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
    };
    for (const route of routes) {
      const said = paths[route.path.replaceAll(/:(\w+)/g, '{$1}')]![route.method]!.responses;
      const statuses = [
        ...Object.keys(route.answers),
        ...route.codes.map((code) => String(errors[code].status)),
      ];
      for (const status of statuses) expect(said).toHaveProperty(status);
    }
  });

  it('every code is one that a route can say, but for those that belong to no route', () => {
    const said = new Set(routes.flatMap(({ codes }) => codes));
    const general: ErrorCode[] = [
      'INVALID_REQUEST',
      'UNAUTHENTICATED',
      'SIGNATURE_INVALID',
      'FORBIDDEN',
      'ROUTE_NOT_FOUND',
      'BODY_TOO_LARGE',
      'INTERNAL_ERROR',
      'DATABASE_UNAVAILABLE',
      // What an operator reads in Temporal of a claim that waits for its twin; the API says 202.
      'RESERVATION_IN_PROGRESS',
      'RATE_LIMITED',
    ];
    expect(codes.filter((code) => !said.has(code) && !general.includes(code))).toEqual([]);
  });

  it.each(codes)(
    '%s has a title, a type of its own and a sentence that says what to do',
    (code) => {
      const { status, title, whatToDo } = errors[code];
      expect(status).toBeGreaterThanOrEqual(400);
      expect(title).toMatch(/^[A-Z].*[^.]$/);
      expect(whatToDo).toMatch(/^[A-Z].*\.$/);
      expect(new Problem(code, 'Cause.').toJSON()).toEqual({
        type: `urn:tahan:error:${code.toLowerCase().replaceAll('_', '-')}`,
        title,
        status,
        detail: `Cause. ${whatToDo}`,
        code,
      });
    },
  );
});
