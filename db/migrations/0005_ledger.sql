-- The ledger is read like a bank statement: newest first by (created_at, id), so that a period is a range
-- of an index whatever else is asked. The product's index has bin and version too: a bin's movements are
-- picked in the index, and where a period begins in each bin is found without reading a row.
drop index tahan.movements_by_product;
create index movements_by_product on tahan.movements (sku, created_at, id, bin_id, bin_version);
create index movements_by_time on tahan.movements (created_at, id);
create index movements_by_actor on tahan.movements (actor, created_at, id);
-- The types that a shop makes few of; a claim, a payment and a release pay nothing for it.
create index movements_by_rare_type on tahan.movements (type, created_at, id)
  where type in ('manual_adjustment', 'restock', 'return');
