import type { Database } from './database.js';
import { cursorParts, writeCursor } from './readHold.js';
import type { ProductSettings } from './product.js';

export interface Bin {
  code: string;
  available: number;
  held: number;
  sold: number;
  total: number;
  safetyStock: number;
  sellable: number;
  version: number;
  updatedAt: string;
}

export interface Product extends Required<ProductSettings> {
  sku: string;
  createdAt: string;
  updatedAt: string;
  bins: Bin[];
}

/** A product with its settings and bins, or null. Bins show the rows as they are, overdue holds included in `held`. */
export function readProduct(db: Database, sku: string, withinMs?: number): Promise<Product | null> {
  return db.reads.answer<Product | null>(
    { name: 'read_product', text: `select tahan.show_product($1::text) as answer`, values: [sku] },
    { withinMs },
  );
}

/** Products by sku, a page at a time. */
export async function listProducts(
  db: Database,
  { cursor, limit }: { cursor?: string; limit: number },
  withinMs?: number,
): Promise<{ items: Product[]; nextCursor: string | null }> {
  const after = cursor === undefined ? null : cursorParts(cursor, 1)[0]!;
  const rows = await db.reads.rows<{ product: Product }>(
    {
      name: 'list_products',
      text: `
        select tahan.show_product(p.sku) as product from tahan.products p
        where ($1::text is null or p.sku > $1::text collate "C")
        order by p.sku limit $2::int + 1`,
      values: [after, limit],
    },
    { withinMs },
  );
  const items = rows.slice(0, limit).map((row) => row.product);
  const last = items.at(-1);
  return { items, nextCursor: rows.length > items.length && last ? writeCursor([last.sku]) : null };
}
