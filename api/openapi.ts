import { OpenApiGeneratorV31, OpenAPIRegistry } from '@asteasolutions/zod-to-openapi';
import type { RouteConfig } from '@asteasolutions/zod-to-openapi';
import { z } from 'zod';
import { errors } from './errors.js';
import type { ErrorCode } from './errors.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';

/** The document that `api/openapi.json` keeps and GET /openapi.json serves, made from the routes. */
export function openApiDocument(routes: Route[]): object {
  const registry = new OpenAPIRegistry();
  registry.registerComponent('securitySchemes', 'key', {
    type: 'http',
    scheme: 'bearer',
    description: 'A shop key checks out; an operator key may do all.',
  });
  for (const one of routes) registry.registerPath(pathOf(one));
  return new OpenApiGeneratorV31(registry.definitions).generateDocument({
    openapi: '3.1.0',
    info: {
      title: 'tahan',
      version: '1',
      description: 'Promises each unit of limited stock to at most one buyer, for a limited time.',
    },
  });
}

function pathOf(one: Route): RouteConfig {
  const names = [...one.path.matchAll(/:(\w+)/g)].map((match) => match[1]!);
  return {
    method: one.method,
    path: one.path.replaceAll(/:(\w+)/g, '{$1}'),
    summary: one.summary,
    security: one.role === 'shop' || one.role === 'operator' ? [{ key: [] }] : [],
    request: {
      ...(names.length > 0
        ? { params: z.object(Object.fromEntries(names.map((name) => [name, z.string()]))) }
        : {}),
      query: one.query as z.ZodObject,
      ...headersOf(one),
      ...(one.body === undefined
        ? {}
        : {
            body: {
              required: true,
              content: {
                'application/json': { schema: one.body },
                ...(one.takesCsv ? { 'text/csv': { schema: z.string() } } : {}),
              },
            },
          }),
    },
    responses: { ...answersOf(one), ...problemsOf(one) },
  };
}

function headersOf({ signature = [], idempotencyKey }: Route) {
  const headers: Record<string, z.ZodType> = {};
  const key = z.string().min(1).max(255);
  if (idempotencyKey !== undefined) {
    headers['Idempotency-Key'] = idempotencyKey === 'required' ? key : key.optional();
  }
  for (const name of signature) headers[name] = z.string();
  return Object.keys(headers).length > 0 ? { headers: z.object(headers) } : {};
}

function answersOf({ answers }: Route): RouteConfig['responses'] {
  return Object.fromEntries(
    Object.entries(answers).map(
      ([status, { description, schema, headers = [], alsoAs = [], onlyAs }]) => [
        status,
        {
          description,
          content: {
            [onlyAs ?? 'application/json']: { schema },
            ...Object.fromEntries(alsoAs.map((type) => [type, { schema: z.string() }])),
          },
          ...(headers.length > 0
            ? {
                headers: Object.fromEntries(
                  headers.map((name) => [name, { schema: { type: 'string' as const } }]),
                ),
              }
            : {}),
        },
      ],
    ),
  );
}

/** What a route can refuse with: its own codes and those that every route of its kind can say. */
export function codesOf(one: Route): Set<ErrorCode> {
  const codes = new Set<ErrorCode>(one.codes);
  if (one.role !== 'none') codes.add('INVALID_REQUEST').add('DATABASE_UNAVAILABLE');
  if (one.role === 'shop' || one.role === 'operator')
    codes.add('UNAUTHENTICATED').add('RATE_LIMITED');
  if (one.role === 'operator') codes.add('FORBIDDEN');
  if (one.role === 'signed') codes.add('SIGNATURE_INVALID');
  if (one.method !== 'get') codes.add('BODY_TOO_LARGE');
  return codes;
}

function problemsOf(one: Route): RouteConfig['responses'] {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codesOf(one)) {
    const { status } = errors[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, list]) => [
      String(status),
      {
        description: list.join(', '),
        content: { 'application/problem+json': { schema: schemas.problem } },
      },
    ]),
  );
}

/** @param routes asked for when it is called: the list has this route in it */
export function openApiRoute(routes: () => Route[]): Route {
  let document: object | undefined;
  return route({
    method: 'get',
    path: '/openapi.json',
    summary: 'This document',
    role: 'none',
    query: schemas.noQuery,
    answers: {
      200: { description: 'OpenAPI 3.1', schema: z.looseObject({ openapi: z.string() }) },
    },
    codes: [],
    handle: () => Promise.resolve(ok((document ??= openApiDocument(routes())))),
  });
}
