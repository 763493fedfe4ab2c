import { readAvailability } from '../db/readAvailability.js';
import { Clock } from './clock.js';
import { Problem } from './errors.js';
import { theOne } from './headers.js';
import { skuOf } from './products.js';
import { noProduct } from './refusals.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { showAvailability } from './show.js';
import { events } from './watch.js';

const readUntilMs = 3000;

/** What may be shown of stock. It may be a moment old; only a checkout decides (R12). */
export const availabilityRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/products/:sku/availability',
    summary: 'What may be shown of a product; only a checkout decides. Its bins for an operator',
    role: 'shop',
    query: schemas.noQuery,
    answers: { 200: { description: 'The counts', schema: schemas.availability } },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND'],
    async handle({ params, clock, role }, { db }) {
      const sku = skuOf(params);
      const bins = role === 'operator';
      const [found] = await readAvailability(db, [sku], clock.left(readUntilMs), { bins });
      if (found === undefined) throw noProduct(sku);
      return ok(showAvailability(found, role));
    },
  }),
  route({
    method: 'post',
    path: '/v1/availability',
    summary: 'What may be shown of up to 200 products, in one snapshot',
    role: 'shop',
    query: schemas.noQuery,
    body: schemas.availabilityBody,
    answers: { 200: { description: 'The counts', schema: schemas.availabilityList } },
    codes: ['INVALID_SKU'],
    async handle({ body, clock, role }, { db }) {
      const skus = [...new Set(body.skus)];
      const items = await readAvailability(db, skus, clock.left(readUntilMs));
      const known = new Set(items.map((one) => one.sku));
      return ok({
        items: items.map((one) => showAvailability(one, role)),
        unknown: skus.filter((sku) => !known.has(sku)),
      });
    },
  }),
  route({
    method: 'get',
    path: '/v1/availability/stream',
    summary:
      'Availability of up to 50 products as it changes (server-sent events): first each as it is, then each change, at most ten a second of a product. Changes in between may be left out; what came last is true',
    role: 'shop',
    query: schemas.streamQuery,
    answers: {
      200: {
        description: 'Events `availability`; comments in between keep the connection',
        schema: schemas.availability,
        onlyAs: 'text/event-stream',
      },
    },
    codes: ['INVALID_SKU', 'PRODUCT_NOT_FOUND', 'STREAMS_BUSY'],
    async handle({ query, clock, role, rawHeaders }, { watch, keys }) {
      const watcher = await watch.open(query.skus, role, clock.left(readUntilMs));
      // A key that was revoked ends its streams too, unless nobody can say.
      const mayGoOn = () =>
        keys
          .authenticate(
            theOne({ rawHeaders }, 'authorization', 'UNAUTHENTICATED'),
            'shop',
            new Clock(),
          )
          .then(
            () => true,
            (error: unknown) => !(error instanceof Problem),
          );
      return {
        status: 200,
        body: undefined,
        // nginx would keep the events back.
        headers: { 'x-accel-buffering': 'no' },
        stream: (write, gone) => events(watcher, { write, gone, mayGoOn }),
      };
    },
  }),
];
