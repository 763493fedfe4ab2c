import { putBuyerRules } from '../db/buyerRules.js';
import { readBuyerRules } from '../db/readBuyerRules.js';
import { Problem } from './errors.js';
import { patience } from './products.js';
import { ok, route } from './route.js';
import type { Route } from './route.js';
import * as schemas from './schemas.js';
import { buyerRules, showBuyerRules } from './show.js';

/** Rules of the installation, decided by every claim; a product's own limit is set with the product. */
export const buyerRuleRoutes: Route[] = [
  route({
    method: 'get',
    path: '/v1/settings/buyer-rules',
    summary: 'What one buyer may do, whatever the products allow',
    role: 'operator',
    query: schemas.noQuery,
    answers: { 200: { description: 'The rules', schema: schemas.buyerRules } },
    codes: [],
    async handle({ clock }, { db }) {
      return ok(showBuyerRules(await readBuyerRules(db, clock.left(3000))));
    },
  }),
  route({
    method: 'put',
    path: '/v1/settings/buyer-rules',
    summary: 'Change what one buyer may do',
    role: 'operator',
    query: schemas.noQuery,
    body: schemas.buyerRulesBody,
    answers: { 200: { description: 'Changed, or as it was', schema: schemas.buyerRules } },
    codes: ['REASON_REQUIRED', 'STOCK_LOCK_TIMEOUT'],
    async handle({ body, clock, actor }, { db }) {
      const { reason, ...rules } = body;
      const { outcome } = await putBuyerRules(
        db,
        buyerRules(rules),
        { actor, reason },
        patience(clock),
      );
      // Each field was checked before, and they do not depend on one another.
      if (outcome === 'INVALID') throw new Error('rules that were checked do not fit');
      if (outcome === 'REASON_REQUIRED')
        throw new Problem('REASON_REQUIRED', 'A change of the rules needs a reason.');
      return ok(showBuyerRules(await readBuyerRules(db, clock.left())));
    },
  }),
];
